"""The client against an API server that checks every request: answers, refusals and deadlines."""

import os
import time

import pytest

from dlrover_cli.platforms.kubernetes.client import JOB, POD, VOLCANO_JOB
from dlrover_cli.platforms.kubernetes.connecting import connect
from dlrover_cli.platforms.kubernetes.faults import KubernetesError
from dlrover_cli.platforms.kubernetes.objects import RunObjects
from dlrover_cli.platforms.kubernetes.replacing import NodeReplacement
from dlrover_cli.platforms.kubernetes.request import request_of
from dlrover_cli.telemetry.events import record_nothing
from tests.engines.kubernetes.api_server import TOKEN, Trouble

pytestmark = pytest.mark.full

RUN_ID = "20300131-060000-abc123"


@pytest.fixture
def objects(cluster, settings):
    """Of a job with two nodes."""
    return objects_of(settings(nnodes="2"))


def objects_of(settings, deadline=5.0):
    client = connect(os.environ, deadline=deadline)
    return RunObjects(client, request_of(settings), RUN_ID)


def test_all_objects_are_made_owned_found_and_deleted(cluster, objects):
    objects.create()
    [job] = cluster.of_kind("jobs")
    [store] = [pod for pod in cluster.of_kind("pods") if pod not in cluster.nodes()]
    for other in (*cluster.of_kind("services"), store):
        [owner] = other["metadata"]["ownerReferences"]
        assert owner["uid"] == job["metadata"]["uid"]
    assert objects.main()["metadata"]["name"] == objects.name
    assert len(objects.pods()) == 2
    assert len(objects.pods(role=None)) == 3
    assert objects.delete() == []
    assert cluster.objects == {}


@pytest.mark.parametrize("flags", [{}, {"k8s_kind": "volcano"}])
def test_every_kind_is_accepted(flags, cluster, settings):
    objects = objects_of(settings(nnodes="1:2", **flags))
    objects.create()
    assert len(objects.pods()) == 2
    objects.delete()
    assert cluster.objects == {}


def test_an_object_that_is_missing_is_none_and_deleting_it_no_error(objects):
    assert objects.main() is None
    assert objects.pods() == []
    assert objects.delete() == []


def test_selectors_do_not_find_other_runs(cluster, objects, settings):
    other = RunObjects(objects.client, objects.request, "20300131-060000-def456")
    objects.create()
    other.create()
    assert len(objects.pods(role=None)) == 3
    objects.delete()
    assert len(other.pods(role=None)) == 3


def test_a_job_that_is_there_already_is_left_alone(cluster, objects):
    objects.create()
    with pytest.raises(KubernetesError) as caught:
        objects.create()
    assert caught.value.status == 409
    assert "is there already in the namespace 'default'" in caught.value.message
    assert objects.main() is not None
    assert len(objects.pods()) == 2


def test_if_the_last_object_cannot_be_made_none_is_left(cluster, objects):
    cluster.troubles.append(Trouble("POST", "/services$", 403, "services is forbidden"))
    with pytest.raises(KubernetesError) as caught:
        objects.create()
    assert "you may not create the Service" in caught.value.message
    assert "kubectl auth can-i create services -n default" in caught.value.hint
    assert cluster.objects == {}


def test_an_object_whose_making_got_no_answer_is_deleted(cluster, settings):
    objects = objects_of(settings(nnodes="2"), deadline=0.5)
    cluster.troubles.append(Trouble("POST", "/services$", delay=1.0))
    with pytest.raises(KubernetesError, match="gave no whole answer within"):
        objects.create()
    assert cluster.of_kind("jobs") == []
    assert any(call.method == "DELETE" and "/services/" in call.path for call in cluster.calls)


@pytest.mark.parametrize(
    "status, sentence, may_pass",
    [
        (401, "does not know who we are", False),
        (403, "you may not get the Job", False),
        (409, "is there already", False),
        (422, "Kubernetes refuses the Job", False),
        (400, "Kubernetes refuses the Job", False),
        (429, "does not get the Job", True),
        (500, "failed to get the Job", True),
        (503, "with HTTP 503: no leader", True),
        (302, "nobody understands the answer", False),
    ],
)
def test_refusals_are_sentences(status, sentence, may_pass, cluster, objects):
    cluster.troubles.append(Trouble("GET", "/jobs/", status, "no leader"))
    with pytest.raises(KubernetesError) as caught:
        objects.main()
    assert sentence in caught.value.message
    assert caught.value.hint
    assert caught.value.may_pass is may_pass
    assert "\n" not in caught.value.message


def test_a_namespace_that_is_missing(cluster, settings):
    with pytest.raises(KubernetesError, match="there is no namespace 'nowhere'"):
        objects_of(settings(k8s_namespace="nowhere")).create()


def test_a_cluster_without_volcano(cluster, settings):
    cluster.lacks = ("batch.volcano.sh/v1alpha1",)
    with pytest.raises(KubernetesError, match=r"has no Job of batch\.volcano\.sh") as caught:
        objects_of(settings(k8s_kind="volcano")).create()
    assert "install Volcano" in caught.value.hint


def test_a_token_that_is_not_known(api, tmp_path, settings, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "config", TOKEN + "x")))
    with pytest.raises(KubernetesError, match="does not know who we are"):
        objects_of(settings()).create()


def test_nobody_listens(api, tmp_path, settings, monkeypatch):
    api.url = "http://127.0.0.1:9"
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "config")))
    objects = objects_of(settings())
    with pytest.raises(KubernetesError, match="cannot be reached: ") as caught:
        objects.main()
    assert caught.value.may_pass


@pytest.mark.parametrize("how", [{"delay": 3.0}, {"drips": True}], ids=["silent", "dripping"])
def test_a_slow_server_is_given_up_at_the_deadline(how, cluster, settings):
    objects = objects_of(settings(), deadline=0.7)
    cluster.troubles.append(Trouble("GET", "/jobs/", **how))
    begin = time.monotonic()
    with pytest.raises(KubernetesError, match=r"gave no whole answer within 0\.7 seconds"):
        objects.main()
    assert time.monotonic() - begin < 2.5


def test_a_connection_that_breaks_is_a_sentence(cluster, objects):
    cluster.troubles.append(Trouble("GET", "/jobs/"))
    with pytest.raises(KubernetesError, match="cannot be reached"):
        objects.main()


def test_a_node_that_is_replaced_gets_a_new_pod_at_no_cost(cluster, objects):
    objects.create()
    first, second = cluster.nodes()
    for pod in (first, second):
        cluster.run(pod)
    for _ in range(5):
        [*_, latest] = cluster.nodes()
        assert objects.replace_node(latest["metadata"]["name"])
    assert objects.main()["status"].get("conditions") is None
    assert objects.main()["status"]["failed"] == 0
    indexes = [
        pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        for pod in cluster.nodes()
        if pod["status"]["phase"] in ("Pending", "Running")
    ]
    assert sorted(indexes) == ["0", "1"]


def test_a_node_that_is_gone_cannot_be_replaced(objects):
    assert objects.replace_node("nothing") is False


def test_a_barred_machine_is_used_again_if_there_is_no_other(cluster, objects):
    objects.create()
    said = []
    replacement = NodeReplacement(objects, said.append, record_nothing, patience=0.0)
    first, _ = cluster.nodes()
    cluster.run(first, "bad")
    cluster.end(first, 81)
    replacement.look(objects.pods(role=None))
    [bar] = objects.pods(role="bar")
    assert bar["spec"]["nodeName"] == "bad"
    replacement.look(objects.pods(role=None))
    assert objects.pods(role="bar") == [bar]  # nobody waits for a machine yet
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    cluster.nodes()[-1]["status"]["conditions"] = [waiting]
    replacement.look(objects.pods(role=None))
    assert objects.pods(role="bar") == []
    assert said[-1] == "no other machine is there: bad may be used again"
    replacement.look(objects.pods(role=None))
    assert len(said) == 2


def test_who_may_not_bar_a_machine_says_so_and_goes_on(cluster, objects):
    objects.create()
    said = []
    replacement = NodeReplacement(objects, said.append, record_nothing)
    first, _ = cluster.nodes()
    cluster.run(first, "bad")
    cluster.end(first, 81)
    cluster.troubles.append(Trouble("POST", "/pods$", 403, "quota"))
    replacement.look(objects.pods(role=None))
    [line] = said
    assert "quota" in line
    assert line.endswith("; the job goes on without it")


def test_a_budget_may_forbid_a_replacement(cluster, objects):
    objects.create()
    cluster.troubles.append(Trouble("POST", "/eviction$", 429, "violates the disruption budget"))
    with pytest.raises(KubernetesError, match="violates the disruption budget"):
        objects.replace_node(cluster.nodes()[0]["metadata"]["name"])


def test_grace_is_handed_on_to_the_pods(cluster, objects):
    objects.create()
    cluster.keeps_terminating = True
    cluster.calls.clear()
    import threading

    def let_go():
        time.sleep(0.8)
        for pod in cluster.of_kind("pods"):
            cluster._remove(pod)

    thread = threading.Thread(target=let_go)
    thread.start()
    assert objects.delete(grace=3.0) == []
    thread.join()
    graces = [
        call.body.get("gracePeriodSeconds")
        for call in cluster.calls
        if call.method == "DELETE" and "/pods/" in call.path
    ]
    assert graces.count(3) == 3


def test_kinds_have_the_paths_of_kubernetes():
    assert POD.path("a", "b", "log") == "/api/v1/namespaces/a/pods/b/log"
    assert JOB.path("a") == "/apis/batch/v1/namespaces/a/jobs"
    assert VOLCANO_JOB.path("a", "x/y").endswith("/v1alpha1/namespaces/a/jobs/x%2Fy")

"""The objects of a job: whole files to compare with, and what Kubernetes' schemas say to them."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlrover_cli.platforms.kubernetes.launch import plan
from dlrover_cli.platforms.kubernetes.manifests import manifests
from dlrover_cli.platforms.kubernetes.request import request_of
from tests.engines.kubernetes.schemas import OLDEST, RELEASE, complaints

pytestmark = pytest.mark.full

GOLDEN = Path(__file__).parent / "golden"
RUN_ID = "20300131-060000-abc123"
FULL = {
    "nnodes": "2:4",
    "nproc_per_node": "8",
    "resources": "cpu=32,memory=128Gi,nvidia.com/gpu=8",
    "k8s_namespace": "team",
    "max_restarts": 2,
    "shutdown_timeout": 60,
}


@pytest.mark.parametrize("release", [OLDEST, RELEASE])
@pytest.mark.parametrize("kind", ["job", "volcano", "cron"])
def test_objects_are_as_in_the_golden_file_and_valid(kind, release, settings):
    objects = objects_of(kind, settings)
    text = yaml.safe_dump_all(objects, sort_keys=False, width=120)
    assert text == (GOLDEN / f"{kind}.yaml").read_text()
    assert [complaints(each, release=release) for each in objects] == [[]] * len(objects)


def test_a_schema_that_is_not_kept_to_is_noticed(settings):
    [job, *_] = objects_of("job", settings)
    job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["value"] = [82]
    assert complaints(job) != []
    [volcano] = objects_of("volcano", settings)
    volcano["spec"]["tasks"][1]["policies"][0]["event"] = "PodFailed"
    assert complaints(volcano) == [
        "a policy has either an event or an exit code",
        "two policies for the same event or exit code",
    ]


def test_the_plan_is_the_same_each_time_and_reads_back(settings):
    first, again = plan(settings(nnodes="2"), []), plan(settings(nnodes="2"), [])
    assert first == again
    documents = list(yaml.safe_load_all(first))
    assert [each["kind"] for each in documents] == ["Job", "Pod", "Service"]
    [name] = {each["metadata"]["name"].removesuffix("-store") for each in documents}
    assert name.startswith("train-dry-run-")
    assert first.startswith(
        "# To be deleted with: kubectl delete jobs,pods,services -n default -l "
    )
    assert plan(settings(nnodes="3"), []) != first


def test_the_plan_as_json_is_one_list(settings):
    import json

    document = json.loads(plan(settings(dry_run=True, json_output=True), []))
    assert document["kind"] == "List"
    assert len(document["items"]) == 3


def test_a_job_of_fixed_size_needs_every_node_to_succeed(settings):
    job = manifests(request_of(settings(nnodes="3")), RUN_ID)[0]["spec"]
    assert job["completions"] == job["parallelism"] == 3
    assert "successPolicy" not in job


def test_an_elastic_job_does_not_wait_for_pods_that_never_got_a_machine(settings):
    job = manifests(request_of(settings(nnodes="2:5")), RUN_ID)[0]["spec"]
    assert job["completions"] == job["parallelism"] == 5
    assert job["successPolicy"] == {"rules": [{"succeededCount": 2}]}


def test_launchers_know_where_to_meet_and_host_nothing(settings):
    command = node_container("job", settings)["command"]
    name = f"train-{RUN_ID}"
    assert command[0] == "dlrover-run"
    assert f"--rdzv-endpoint={name}-store.{name}:29400" in command
    assert "--rdzv-conf=read_timeout=600,is_host=0" in command
    assert command[-3:] == ["--", "train.py", "--lr=1"]


def test_volcanos_names_are_those_that_its_plugin_gives(settings):
    command = node_container("volcano", settings)["command"]
    name = f"train-{RUN_ID}"
    assert f"--rdzv-endpoint={name}-store-0.{name}:29400" in command


def test_every_job_of_a_cron_job_meets_apart_from_the_others(settings):
    container = node_container("cron", settings)
    assert "--rdzv-id=$(DLROVER_KUBERNETES_JOB)" in container["command"]
    [variable] = [each for each in container["env"] if each["name"] == "DLROVER_KUBERNETES_JOB"]
    field = variable["valueFrom"]["fieldRef"]["fieldPath"]
    assert field == "metadata.labels['batch.kubernetes.io/job-name']"


def test_what_looks_like_a_variable_of_kubernetes_stays_as_it_is(settings):
    request = request_of(settings("train.py", "$(HOME)", "$HOME"), {"A": "$(B)"})
    [job, *_] = manifests(request, RUN_ID)
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][-2:] == ["$$(HOME)", "$HOME"]
    assert {"name": "A", "value": "$$(B)"} in container["env"]


def test_a_pod_has_the_shutdown_timeout_and_some_more(settings):
    def grace(**flags: Any) -> int:
        [job, *_] = manifests(request_of(settings(**flags)), RUN_ID)
        return job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]

    assert grace() == 45
    assert grace(shutdown_timeout=120) == 135


def test_gpus_are_limits_and_processors_are_not(settings):
    resources = node_container("job", settings)["resources"]
    assert resources["limits"] == {"memory": "128Gi", "nvidia.com/gpu": "8"}
    assert resources["requests"] == {"cpu": "32", **resources["limits"]}


def test_settings_of_this_machine_are_not_handed_on(settings):
    command = " ".join(node_container("job", settings)["command"])
    for name in ("k8s", "platform", "resources", "dry-run", "result-file"):
        assert f"--{name}" not in command
    assert "--max-restarts=2" in command
    assert "--tee=3" in command


def test_what_is_said_about_output_is_kept(settings):
    [job, *_] = manifests(request_of(settings(redirects="1")), RUN_ID)
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert "--redirects=1" in command
    assert "--tee=3" not in command


@pytest.mark.parametrize(
    "script, run_id",
    [
        ("/src/Train_LLM.v2.py", RUN_ID),
        ("0.py", RUN_ID),
        ("训练.py", RUN_ID),
        ("a" * 200 + ".py", "x" * 200),
        ("pkg.train", "Run/With:Odd Characters_"),
        ("-", "-"),
    ],
)
@pytest.mark.parametrize("kind", ["job", "volcano", "cron"])
def test_names_are_good_for_dns_whatever_script_and_run_are_called(script, run_id, kind, settings):
    request = request_of(settings(script, nnodes="10000"))
    request = dataclasses.replace(
        request,
        kind="volcano" if kind == "volcano" else "job",
        schedule="0 0 * * *" if kind == "cron" else None,
    )
    for each in manifests(request, run_id):
        assert complaints(each) == []
        name = each["metadata"]["name"]
        longest = {"job": "-9999", "volcano": "-node-9999", "cron": "-0123456789-9999"}[kind]
        assert len(name.removesuffix("-store") + longest) <= 63
        assert name[0].isalpha()
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert not name.endswith("-")


def test_long_run_ids_that_begin_alike_have_different_names(settings):
    request = request_of(settings())
    names = {manifests(request, "x" * 60 + end)[0]["metadata"]["name"] for end in "ab"}
    assert len(names) == 2


def objects_of(kind: str, settings: Any) -> list[dict[str, Any]]:
    flags = {**FULL, "k8s_kind": "volcano" if kind == "volcano" else "job"}
    request = request_of(settings("train.py", "--lr=1", **flags), {"NCCL_DEBUG": "INFO"})
    if kind == "cron":
        request = dataclasses.replace(request, schedule="*/30 * * * *")
    return manifests(request, RUN_ID)


def node_container(kind: str, settings: Any) -> dict[str, Any]:
    spec = objects_of(kind, settings)[0]["spec"]
    if kind == "volcano":
        return spec["tasks"][1]["template"]["spec"]["containers"][0]
    job = spec["jobTemplate"]["spec"] if kind == "cron" else spec
    return job["template"]["spec"]["containers"][0]

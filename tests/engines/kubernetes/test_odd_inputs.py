"""What cannot run on Kubernetes is said in one sentence with a hint, before anything is asked."""

import sys

import pytest

from dlrover_cli.contracts.jobs import AISubGraph, PeriodicConfig, ProjectDesc
from dlrover_cli.errors import ConfigError, UsageError
from dlrover_cli.platforms.kubernetes.connecting import connect
from dlrover_cli.platforms.kubernetes.plugin import KubernetesTorchConfig, KubernetesTorchPlugin
from dlrover_cli.platforms.kubernetes.request import request_of
from dlrover_cli.platforms.kubernetes.schedule import cron_of

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    "flags, sentence",
    [
        ({"k8s_image": ""}, "needs an image for its pods"),
        ({"k8s_image": "Team/Train"}, "--k8s-image takes the name of an image, not 'Team/Train'"),
        ({"k8s_image": "train:"}, "takes the name of an image"),
        ({"k8s_image": "a b"}, "takes the name of an image"),
        ({"k8s_image": "http://registry/train"}, "takes the name of an image"),
        ({"k8s_image": "train@sha256:12"}, "takes the name of an image"),
        ({"k8s_namespace": "Team"}, "--k8s-namespace takes lower case letters"),
        ({"k8s_namespace": ""}, "--k8s-namespace takes lower case letters"),
        ({"k8s_namespace": "-team"}, "--k8s-namespace takes lower case letters"),
        ({"k8s_namespace": "a" * 64}, "--k8s-namespace takes lower case letters"),
        ({"k8s_namespace": "a/b"}, "--k8s-namespace takes lower case letters"),
        ({"resources": "cpu"}, "--resources takes NAME=QUANTITY, not 'cpu'"),
        ({"resources": "cpu="}, "takes NAME=QUANTITY"),
        ({"resources": "=4"}, "takes NAME=QUANTITY"),
        ({"resources": "cpu=four"}, "takes a quantity such as 8 or 16Gi for cpu, not 'four'"),
        ({"resources": "cpu=-1"}, "takes a quantity"),
        ({"resources": "memory=8GB"}, "takes a quantity such as 8 or 16Gi for memory, not '8GB'"),
        ({"resources": "memory=0"}, "asks for no memory at all"),
        ({"resources": "cpu=1,cpu=2"}, "names cpu twice"),
        ({"resources": "memroy=1Gi"}, "names 'memroy', which is no resource of Kubernetes"),
        ({"resources": "nvidia.com/gpu=0.5"}, "takes a whole number for nvidia.com/gpu"),
        ({"resources": "nvidia.com/=1"}, "which is no resource of Kubernetes"),
        ({"nnodes": "20000"}, "--nnodes takes up to 10000 nodes"),
        ({"nnodes": "0"}, "--nnodes needs at least one node"),
        ({"standalone": True}, "--standalone is for one machine"),
        ({"interactive": True}, "--interactive asks on a terminal, and pods have none"),
        ({"compat": "torchrun"}, "--compat has torchrun do all"),
        ({"rdzv_backend": "c10d"}, "--rdzv-backend cannot be chosen on Kubernetes"),
        ({"rdzv_endpoint": "host:1"}, "--rdzv-endpoint cannot be chosen on Kubernetes"),
        ({"rdzv_handler": "a::B"}, "--rdzv-handler cannot be chosen on Kubernetes"),
        ({"rdzv_id": "mine"}, "--rdzv-id cannot be chosen on Kubernetes"),
        ({"node_rank": 1}, "--node-rank cannot be chosen on Kubernetes"),
        ({"master_addr": "host"}, "--master-addr cannot be chosen on Kubernetes"),
        ({"master_port": 1}, "--master-port cannot be chosen on Kubernetes"),
        ({"local_addr": "10.0.0.1"}, "--local-addr cannot be chosen on Kubernetes"),
    ],
)
def test_settings_that_cannot_be(flags, sentence, settings):
    with pytest.raises(ConfigError) as caught:
        request_of(settings(**flags))
    assert sentence in caught.value.message
    assert caught.value.hint
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "flags",
    [
        {"k8s_image": "train"},
        {"k8s_image": "localhost:5000/a/b_c/d-e:1.0-rc1"},
        {"k8s_image": "train@sha256:" + "0" * 64},
        {"resources": " cpu = 500m , memory = 1.5Gi "},
        {"resources": "gpu=2"},
        {"resources": "hugepages-2Mi=64Mi,rdma/hca_shared_devices_a=1"},
        {"rdzv_backend": "dlrover"},
        {"nproc_per_node": "gpu"},
    ],
)
def test_settings_that_can_be(flags, settings):
    request_of(settings(**flags))


def test_gpu_stands_for_those_of_nvidia(settings):
    assert request_of(settings(resources="gpu=2")).resources == {"nvidia.com/gpu": "2"}


def test_by_default_each_worker_has_a_processor(settings):
    assert request_of(settings(nproc_per_node="4")).resources == {"cpu": "4"}
    assert request_of(settings(nproc_per_node="gpu")).resources == {"cpu": "1"}


def test_rules_of_a_config_file_here_are_not_left_behind_in_silence(settings):
    import dataclasses

    with pytest.raises(ConfigError, match="do not reach the pods"):
        request_of(dataclasses.replace(settings(), failover_table={"rules": []}))


@pytest.mark.parametrize(
    "config, cron",
    [
        ({"interval": "1m"}, "* * * * *"),
        ({"interval": "15m"}, "*/15 * * * *"),
        ({"interval": 3600}, "0 * * * *"),
        ({"interval": "0,6,0,0"}, "0 */6 * * *"),
        ({"interval": "1d"}, "0 0 * * *"),
        ({"interval": "7d"}, "0 0 * * 0"),
        ({"cron": "30 6 * * MON-FRI"}, "30 6 * * MON-FRI"),
        ({"cron": "0  0 1 JUL *"}, "0 0 1 JUL *"),
    ],
)
def test_times_that_a_cron_job_can_keep(config, cron):
    assert cron_of(PeriodicConfig(**config)) == cron


@pytest.mark.parametrize(
    "config, sentence",
    [
        ({"interval": "30s"}, "cannot say every 30 seconds"),
        ({"interval": "7m"}, "cannot say every 420 seconds"),
        ({"interval": "90m"}, "cannot say every 5400 seconds"),
        ({"interval": "5h"}, "cannot say every 18000 seconds"),
        ({"interval": "2d"}, "cannot say every 172800 seconds"),
        ({"interval": "90.5s"}, "cannot say every 90.5 seconds"),
        ({"cron": "0 0 L * *"}, "does not know 'L'"),
        ({"cron": "0 0 * * MON#2"}, "does not know 'MON#2'"),
        ({"interval": "1h", "start_date": "2999-01-01"}, "cannot wait for a start_date"),
        ({}, "neither interval nor cron"),
    ],
)
def test_times_that_it_cannot_keep(config, sentence):
    with pytest.raises(UsageError) as caught:
        cron_of(PeriodicConfig(**config))
    assert sentence in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "properties, sentence",
    [
        ({}, "a torch job needs a script"),
        ({"script": "t.py"}, "needs an image for its pods"),
        ({"script": "t.py", "k8s_image": "t", "env": ["A"]}, "env takes a mapping"),
        ({"script": "t.py", "k8s_image": "t", "env": {"A": 1}}, "env.A takes a text, not 1"),
        ({"script": "t.py", "k8s_image": "t", "env": {"A B": "1"}}, "no variable is called so"),
        ({"script": "t.py", "k8s_image": "t", "env": {"DLROVER_LEASH": "1"}}, "cannot set"),
        ({"script": "t.py", "k8s_image": "t", "gpus": 1}, "is not a property of a torch job"),
    ],
)
def test_job_files_that_cannot_be(properties, sentence, tmp_path):
    config = KubernetesTorchConfig("kubernetes", "torch", "job", properties=properties)
    with pytest.raises(UsageError) as caught:
        KubernetesTorchPlugin().generate(AISubGraph(config), ProjectDesc("p", str(tmp_path)))
    assert sentence in caught.value.message
    assert caught.value.hint


def test_volcano_does_not_repeat_jobs(tmp_path):
    properties = {"script": "t.py", "k8s_image": "t", "k8s_kind": "volcano"}
    periodic = PeriodicConfig(interval="1h")
    config = KubernetesTorchConfig("kubernetes", "torch", "job", periodic, properties=properties)
    with pytest.raises(UsageError, match="makes Jobs of Kubernetes itself and none of Volcano"):
        KubernetesTorchPlugin().generate(AISubGraph(config), ProjectDesc("p", str(tmp_path)))


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    with pytest.raises(UsageError, match="needs the client library of Kubernetes") as caught:
        connect({})
    assert "dlrover-cli[k8s]" in str(caught.value.hint)


def test_no_cluster_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no cluster of Kubernetes is configured") as caught:
        connect({})
    assert "KUBECONFIG" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["", "a: [", "{}", "current-context: x\n"])
def test_a_configuration_that_cannot_be_used(text, tmp_path):
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(UsageError, match="cannot be used") as caught:
        connect({"KUBECONFIG": str(file)})
    assert "\n" not in caught.value.message


def test_a_configuration_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be used"):
        connect({"KUBECONFIG": str(tmp_path / "nothing")})

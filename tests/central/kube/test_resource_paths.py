"""The one table of kinds."""

from central.kube import resource_paths
from central.kube.decode import api_kinds
from central.kube.decode.decoder import Decoder


def test_paths() -> None:
    pod, queue = resource_paths.BY_KIND["Pod"], resource_paths.BY_KIND["Queue"]
    assert pod.path() == "/api/v1/pods"
    assert pod.path("ns", "p") == "/api/v1/namespaces/ns/pods/p"
    assert queue.path("ns", "q") == "/apis/scheduling.volcano.sh/v1beta1/queues/q"
    assert pod.path("ns", "c?d") == "/api/v1/namespaces/ns/pods/c%3Fd"


def test_names() -> None:
    assert resource_paths.BY_KIND["Pod"].api_version == "v1"
    assert resource_paths.BY_KIND["Pod"].full_name == "pods"
    assert resource_paths.BY_KIND["Job"].api_version == "batch.volcano.sh/v1alpha1"
    assert resource_paths.BY_GROUP_KIND["batch", "Job"].full_name == "jobs.batch"


def test_kinds_by_name_are_those_of_decisions() -> None:
    read = api_kinds.kinds_by_name(Decoder(("lockstep",), ()))
    assert read["Job"].resource.group == "batch.volcano.sh"
    assert "ReplicaSet" not in read, "no decision refers to it"

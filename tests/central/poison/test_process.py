"""The corpus against a real scheduler process: it lives on, and another tenant's gang is bound within a second of the
scheduler's processor time, which a busy machine does not change."""

import tempfile
from collections.abc import Iterator

import orjson
import psutil
import pytest

from central.kube.resource_paths import ResourcePath
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES
from protos.names import BLOCK, RACK
from tests.central.kube.raw_objects import container
from tests.central.poison.corpus import CORPUS, Poison
from tests.central.poison.world import kinds
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = pytest.mark.slow

PODS = "/api/v1/namespaces/good/pods"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/good/podgroups"
FENCE_S = 1.0  # of processor time


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyCluster]:
    nodes = [
        HollowNode(f"n{i}", {RACK: "r", BLOCK: "b"}, CAPTURES / "dgx-a100-8.json") for i in range(2)
    ]
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # sockets' paths must be short
    with FaultyCluster(nodes) as made:
        made.start_api()
        made.start_scheduler()
        made.start_nodes()
        made.wait_for_scheduler()
        yield made


def submit(box: FaultyCluster, number: int) -> float:
    """Processor time of the scheduler until a gang of two pods is bound, in seconds. Fails after a while of real time,
    so waiting is bounded, too."""
    name = f"good{number}"
    group = {"metadata": {"name": name}, "spec": {"minMember": 2}}
    box.create(GROUPS, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **group})
    began = processor_s(box)
    for rank in range(2):
        meta = {"name": f"{name}-{rank}", "annotations": {"scheduling.k8s.io/group-name": name}}
        spec = {"schedulerName": "lockstep", "containers": [container()]}
        box.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def bound() -> bool:
        names = (f"{name}-{rank}" for rank in range(2))
        pods = [box.client.get(f"{PODS}/{each}") for each in names]
        return all(pod["spec"].get("nodeName") for pod in pods)

    box.wait(f"gang {name}", bound)
    return processor_s(box) - began


def processor_s(box: FaultyCluster) -> float:
    times = psutil.Process(box.scheduler_pid).cpu_times()
    return times.user + times.system


def put(box: FaultyCluster, number: int, poison: Poison) -> bool:
    """Whether the API took the object."""
    resource: ResourcePath = kinds()[poison.kind].resource
    meta = {key: value for key, value in poison.raw["metadata"].items() if key != "uid"}
    if len(meta["name"]) < 200:
        meta["name"] = f"{meta['name']}-{number}"
    raw = {**poison.raw, "metadata": meta, "kind": resource.kind}
    raw["apiVersion"] = resource.api_version
    reply = box.client.request("POST", resource.path(meta.get("namespace", "")), orjson.dumps(raw))
    return reply.ok


def test_a_gang_is_bound_meanwhile(box: FaultyCluster) -> None:
    for name in ("good", "evil"):
        box.create(
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        )
    taken = 0
    for number, poison in enumerate(CORPUS):
        try:
            taken += put(box, number, poison)
        except (TypeError, ValueError):  # no JSON
            continue
        if number % 20 == 0:
            assert submit(box, 100 + number) < FENCE_S, poison
    assert taken > len(CORPUS) // 3  # the CRDs and the API refuse the others
    assert submit(box, 99) < FENCE_S
    box.check()

"""Resizes in place and pod-level resources, seen by a real scheduler process: what a pod takes, or may come to take, is
given to nobody else, whoever has scheduled it; and what it has given back is."""

from collections.abc import Iterator
from typing import NamedTuple

import orjson
import pytest

from central.kube.transport.http_client import MERGE
from central.model.json_types import Json
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = pytest.mark.slow

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
HOST = "kubernetes.io/hostname"
WITHIN_S = 60.0
CPUS = 8
OURS, OTHERS = "lockstep", "default-scheduler"


def cpu(amount: int) -> Json:
    return {"requests": {"cpu": str(amount)}}


def pending(why: str) -> Json:
    return {"type": "PodResizePending", "status": "True", "reason": why}


class Resize(NamedTuple):
    """Amounts are CPUs. spec, whole: what the container and the pod as a whole (spec.resources) ask for now. granted,
    present: what status says of the container, or of the pod if whole is set. takes: what the node must keep for it."""

    takes: int
    spec: int
    granted: int = 0
    present: int = 0
    whole: int = 0
    conditions: tuple[Json, ...] = ()
    legacy: str = ""  # status.resize, until Kubernetes 1.32

    def status(self) -> Json:
        said: Json = {}
        if self.granted:
            said["allocatedResources"] = {"cpu": str(self.granted)}
        if self.present:
            said["resources"] = cpu(self.present)
        found: Json = {"phase": "Running", "conditions": [*self.conditions]}
        if self.legacy:
            found["resize"] = self.legacy
        return found | (said if self.whole else {"containerStatuses": [{"name": "main", **said}]})


RESIZES = {
    "asked-for": Resize(6, spec=6, granted=2, present=2),
    "deferred": Resize(6, spec=6, granted=2, present=2, conditions=(pending("Deferred"),)),
    "infeasible": Resize(2, spec=6, granted=2, present=2, conditions=(pending("Infeasible"),)),
    "infeasible-before-1.33": Resize(2, spec=6, granted=2, present=2, legacy="Infeasible"),
    "granted": Resize(6, spec=6, granted=6, present=2),
    "asked-back-after-the-grant": Resize(6, spec=2, granted=6, present=2),
    "shrinks": Resize(6, spec=2, granted=6, present=6),
    "shrinks-without-a-grant": Resize(6, spec=2, present=6),
    "whole-pod": Resize(6, spec=1, whole=6),
    "whole-pod-shrinks": Resize(6, spec=1, whole=2, granted=6, present=6),
    "whole-pod-is-granted-more": Resize(6, spec=1, whole=2, granted=6, present=2),
    "whole-pod-infeasible": Resize(
        2, spec=1, whole=6, granted=2, present=2, conditions=(pending("Infeasible"),)
    ),
}


@pytest.fixture(scope="module")
def box() -> Iterator[FaultyCluster]:
    with FaultyCluster([]) as box:
        box.start_api()
        for scheduler in (OURS, OTHERS):
            for case in RESIZES:
                name = f"{case}-{scheduler}"
                amounts = {"cpu": str(CPUS), "memory": "64Gi", "pods": "110"}
                ready = {"type": "Ready", "status": "True"}
                status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
                meta = {"name": name, "labels": {HOST: name}}
                box.create(NODES, {"metadata": meta, "status": status})
        box.start_scheduler()
        box.wait_for_scheduler()
        yield box


def create(box: FaultyCluster, name: str, node: str, amount: int, **spec: object) -> None:
    container = {"name": "main", "image": "x", "resources": cpu(amount)}
    body = {"schedulerName": OURS, "containers": [container], "nodeSelector": {HOST: node}, **spec}
    box.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body})


def change(box: FaultyCluster, path: str, **fields: Json) -> None:
    reply = box.client.request("PATCH", f"{PODS}/{path}", orjson.dumps(fields), MERGE)
    assert reply.ok, reply.error()


def ask(box: FaultyCluster, name: str, resize: Resize) -> None:
    """For other resources, in the subresource that is there for it."""
    spec = box.client.get(f"{PODS}/{name}")["spec"]
    main = {**spec["containers"][0], "resources": cpu(resize.spec)}
    asked: Json = {"containers": [main]}
    if resize.whole:
        asked["resources"] = cpu(resize.whole)
    change(box, f"{name}/resize", spec=asked)


def home(box: FaultyCluster, name: str) -> str:
    return str(box.client.get(f"{PODS}/{name}")["spec"].get("nodeName", ""))


def why(box: FaultyCluster, name: str) -> str:
    conditions = box.client.get(f"{PODS}/{name}").get("status", {}).get("conditions") or ()
    found = [each.get("message", "") for each in conditions if each["type"] == "PodScheduled"]
    return str(found[0]) if found else ""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("scheduler", [OURS, OTHERS])
@pytest.mark.parametrize("case", RESIZES)
def test_what_a_resize_takes_is_left_alone_and_what_it_frees_is_used(
    box: FaultyCluster, case: str, scheduler: str
) -> None:
    resize, node = RESIZES[case], f"{case}-{scheduler}"
    first, fits, larger = f"first-{node}", f"fits-{node}", f"larger-{node}"
    whole = {"resources": cpu(2)} if resize.whole else {}
    bound = {"nodeName": node} if scheduler == OTHERS else {}
    create(box, first, node, 1 if whole else 2, schedulerName=scheduler, **whole, **bound)
    box.wait("the first pod", lambda: home(box, first), WITHIN_S)
    change(box, f"{first}/status", status=resize.status())
    ask(box, first, resize)

    create(box, larger, node, CPUS - resize.takes + 1)
    box.wait("a reason", lambda: "1 node lacks 1 of " in why(box, larger), WITHIN_S)
    create(box, fits, node, CPUS - resize.takes)
    box.wait("the pod that fits", lambda: home(box, fits), WITHIN_S)
    assert home(box, larger) == ""

    reply = box.client.request("DELETE", f"{PODS}/{fits}?gracePeriodSeconds=0")
    assert reply.ok, reply.error()
    small = Resize(1, spec=1, granted=1, present=1, whole=int(bool(resize.whole)))
    ask(box, first, small)
    change(box, f"{first}/status", status={**small.status(), "resize": None})
    box.wait("the larger one", lambda: home(box, larger), WITHIN_S)

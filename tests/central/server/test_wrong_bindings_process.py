"""A real scheduler process whose bindings go wrong: each gang is whole in the end, and no pod is forgotten."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.central.kube.raw_objects import container
from tests.fakes.faulty_api import Fault
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = pytest.mark.slow

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"
LEASE_S = 6
STOPPED_S = 5.0  # its right to act is over, and nobody else has the lease yet
SIZE = 6
WITHIN_S = 90.0
RUBBISH = (b"", b"{}", b"[]", b"<html>sign in</html>", b'{"kind":"Status","status":"Failure"}')


class Bindings:
    """What happens to requests for bindings, which the API server counts by pod."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []  # each is used once
        self.begun = threading.Event()
        self.bound: list[str] = []

    def __call__(self, method: str, path: str) -> Fault | None:
        if method != "POST" or not path.endswith("/binding"):
            return None
        self.begun.set()
        if self.faults:
            return self.faults.pop()
        self.bound.append(path.split("/")[-2])
        return None


@contextmanager
def cluster(bindings: Bindings) -> Iterator[FaultyCluster]:
    flags = ["--leader-elect", "--lease-duration", str(LEASE_S)]
    with FaultyCluster([], flags=flags, faults=bindings) as box:
        box.start_api()
        for number in range(2):
            amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
            ready = {"type": "Ready", "status": "True"}
            status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
            box.create("/api/v1/nodes", {"metadata": {"name": f"n{number}"}, "status": status})
        box.start_scheduler()
        box.wait_for_scheduler()
        yield box


def submit(box: FaultyCluster, name: str) -> None:
    group = {"metadata": {"name": name}, "spec": {"minMember": SIZE}}
    box.create(GROUPS, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **group})
    for rank in range(SIZE):
        meta = {"name": f"{name}-{rank}", "annotations": {"scheduling.k8s.io/group-name": name}}
        spec = {"schedulerName": "lockstep", "containers": [container()]}
        box.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def is_whole(box: FaultyCluster, name: str) -> bool:
    pods = [box.client.get(f"{PODS}/{name}-{rank}") for rank in range(SIZE)]
    return all(pod["spec"].get("nodeName") for pod in pods)


@pytest.mark.parametrize(
    "faults",
    [
        [Fault(200, body) for body in RUBBISH],
        [Fault(200, body, executed=True) for body in RUBBISH],
        [Fault(status, b'{"kind":"Status","code":%d}' % status) for status in (403, 404, 410, 422)],
        [Fault(executed=done) for done in (False, True)] * 2,
        [Fault(500, b"etcd is away"), Fault(503), Fault(504, b"{}", executed=True)],
    ],
    ids=["rubbish", "rubbish, done", "refused", "no answer", "errors"],
)
def test_bindings_that_are_answered_wrongly(faults: list[Fault]) -> None:
    bindings = Bindings()
    with cluster(bindings) as box:
        bindings.faults = list(faults)
        submit(box, "first")
        box.wait("the gang", lambda: is_whole(box, "first"), WITHIN_S)
        assert not bindings.faults
        submit(box, "second")
        box.wait("the next gang", lambda: is_whole(box, "second"), WITHIN_S)
        answer = box.explain("first")
        assert answer is not None
        assert all(pod.node for pod in answer.pods)


def test_a_process_that_stands_still_while_it_binds() -> None:
    """Its lease was not renewed for longer than it may act, and not so long that another replica has it."""
    bindings = Bindings()
    with cluster(bindings) as box:
        bindings.faults = [Fault(503)] * 4  # so that requests are left when it stops
        submit(box, "first")
        assert bindings.begun.wait(WITHIN_S)
        os.kill(box.scheduler_pid, signal.SIGSTOP)
        try:
            submit(box, "second")
            threading.Event().wait(STOPPED_S)
        finally:
            os.kill(box.scheduler_pid, signal.SIGCONT)
        for name in ("first", "second"):
            box.wait(f"gang {name}", lambda name=name: is_whole(box, name), WITHIN_S)  # type: ignore[misc]
        assert len(set(bindings.bound)) == 2 * SIZE

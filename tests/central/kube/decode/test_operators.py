"""Pods of training operators, with gang scheduling on (the operator writes a PodGroup) and off (the pod
templates carry the minimum): no pod starts before all can."""

from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.kube.decode.decoder import Decoder
from central.model.decisions import Bind
from central.model.facts import Fact
from central.model.json_types import Json
from central.scheduler.cycle import schedule_once
from protos import names
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

READER = Decoder(["lockstep", "volcano"], factories.LEVELS)
GROUP = names.GROUP_NAMES[0]


def pod(name: str, owner: tuple[str, str], gpus: int = 8) -> Json:
    kind, of = owner
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "uid": f"uid-{name}",
            "annotations": {},
            "ownerReferences": [
                {"kind": kind, "name": of, "uid": f"uid-{kind}-{of}", "controller": True}
            ],
        },
        "spec": {
            "schedulerName": "volcano",
            "containers": [
                {"name": "c", "resources": {"limits": {names.GPU: str(gpus)} if gpus else {}}}
            ],
        },
    }


def group(name: str, least: int, **spec: Any) -> Json:
    meta = {"namespace": "ml", "name": name, "uid": f"uid-{name}"}
    return {"metadata": meta, "spec": {"minMember": least, "queue": "default", **spec}}


def joined(pods: list[Json], group: str) -> list[Json]:
    for one in pods:
        one["metadata"]["annotations"] = {GROUP: group}
    return pods


TORCH = [
    pod(f"bert-{role}", ("PyTorchJob", "bert")) for role in ("master-0", "worker-0", "worker-1")
]
MPI = [
    *(pod(f"hvd-worker-{i}", ("MPIJob", "hvd")) for i in range(3)),
    pod("hvd-launcher-x7k2p", ("Job", "hvd-launcher"), 0),
]
RAY = [
    pod(f"tune-{kind}", ("RayCluster", "tune"))
    for kind in ("head-abc", "gpu-worker-def", "gpu-worker-ghi")
]
PADDLE = [pod(f"ctr-{role}", ("PaddleJob", "ctr")) for role in ("ps-0", "worker-0", "worker-1")]
WITH_GROUPS: dict[str, tuple[Json, list[Json]]] = {
    "training-operator": (group("bert", 3), joined(TORCH, "bert")),
    "mpi-operator": (group("hvd", 4), joined(MPI, "hvd")),
    "kuberay": (group("ray-tune-pg", 3), joined(RAY, "ray-tune-pg")),
    "paddle-operator": (group("ctr", 3), joined(PADDLE, "ctr")),
}


def bound(objects: list[Json], groups: list[Json], nodes: int) -> int:
    scheduler = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [factories.node(f"n{i}", rack="r1") for i in range(nodes)]
    facts += [READER.gang(raw) for raw in groups]
    facts += [READER.pod(raw) for raw in objects]
    decisions = schedule_once(scheduler, facts, 0.0)
    check_invariants(scheduler)
    return sum(isinstance(one, Bind) for one in decisions)


@pytest.mark.parametrize("operator", WITH_GROUPS)
def test_operators_that_write_podgroups(operator: str) -> None:
    pod_group, pods = WITH_GROUPS[operator]
    assert bound(pods, [pod_group], 2) == 0
    assert bound(pods, [pod_group], 3) == len(pods)


@pytest.mark.parametrize(
    ("kind", "count"), [("PyTorchJob", 3), ("RayCluster", 3), ("PaddleJob", 3), ("TFJob", 3)]
)
def test_operators_without_podgroups(kind: str, count: int) -> None:
    """Their pod templates carry the minimum."""
    pods = [pod(f"x-{i}", (kind, "x")) for i in range(count)]
    for one in pods:
        one["metadata"]["annotations"] = {names.OWNER_MIN: str(count)}
    assert bound(pods, [], count - 1) == 0
    assert bound(pods, [], count) == count


def test_launcher_and_workers_of_an_mpijob_are_one_gang() -> None:
    """The launcher is a pod of a Job that belongs to the MPIJob."""
    pods = [pod(f"hvd-worker-{i}", ("MPIJob", "hvd")) for i in range(3)]
    pods.append(pod("hvd-launcher-x7k2p", ("Job", "hvd-launcher"), 0))
    for one in pods:
        one["metadata"]["annotations"] = {names.OWNER_MIN: "4"}
    launcher = {
        "metadata": {
            "name": "hvd-launcher",
            "uid": "uid-Job-hvd-launcher",
            "ownerReferences": [
                {"kind": "MPIJob", "name": "hvd", "uid": "uid-MPIJob-hvd", "controller": True}
            ],
        }
    }
    scheduler = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [READER.owner("Job", launcher), *(READER.pod(raw) for raw in pods)]
    schedule_once(
        scheduler, [*facts, factories.node("n0", rack="r1"), factories.node("n1", rack="r1")], 0.0
    )
    gang = scheduler.state.gangs["ml", "mpijob/hvd", True]
    assert len(gang.members) == 4
    assert not gang.counts.placed
    decisions = schedule_once(scheduler, [factories.node("n2", rack="r1")], 1.0)
    assert sum(isinstance(one, Bind) for one in decisions) == 4


def test_a_spark_application() -> None:
    """The PodGroup starts with its driver; the driver creates the executors."""
    marks = {GROUP: "spark-pi-pg"}
    driver = pod("pi-driver", ("SparkApplication", "pi"), 0)
    driver["metadata"]["annotations"] = marks
    executors = [pod(f"pi-exec-{i}", ("Pod", "pi-driver"), 8) for i in range(2)]
    for one in executors:
        one["metadata"]["annotations"] = marks
    assert bound([driver], [group("spark-pi-pg", 1)], 1) == 1
    assert bound([driver, *executors], [group("spark-pi-pg", 1)], 2) == 3

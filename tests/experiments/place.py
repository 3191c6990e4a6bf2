"""Place matters: which members of an elastic Job leave, and where newcomers sit.

BERT on T4, as measured for Pollux (OSDI'21): a step takes 0.741 s on four GPUs of one node, and 2.097 s on two nodes
with two each. Here it has four members on two nodes, gives two of them to another Job, and gets two back. Beside it,
what Kubernetes' own controllers do: the highest numbers leave. Their newcomers get the best seats that there are.

The second part shrinks a Job ten times on 16 racks of 16 GPUs, for pods of a service. Its members came one after
another, as other pods ended, so neighbours by number are no neighbours by place.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from central.controllers.composite import new_scheduler
from central.simulator import scenario
from central.simulator.documents import SourceLocation
from central.simulator.simulation import Simulation
from tests.central.scheduler.invariants import check_invariants
from tests.experiments import elastic
from tests.experiments.elastic import ONLINE, Json, service

STEP_S = {1: 0.741, 2: 2.097}  # of BERT on four GPUs, by nodes
GPU, RACK, HOST = "nvidia.com/gpu", "lockstep.dev/rack", "kubernetes.io/hostname"
TRAIN = "train-worker-"
RACKS, NODES_OF_RACK, GPUS = 16, 4, 4
SHRINKS, FIRST_S, EVERY_S = 10, 2000.0, 200.0
GRACE_S = 5.0
Seats = dict[int, str]  # node by member


def node(name: str, rack: str) -> Json:
    allocatable = {GPU: str(GPUS), "cpu": "64", "memory": "512Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {RACK: rack, HOST: name}},
        "status": {"allocatable": allocatable},
    }


def template(grace_s: float = 0.0, runs_s: float = 0.0, on: str = "") -> Json:
    """A pod of one GPU."""
    made = elastic.template(1.0, "1Gi", grace_s)
    container = made["spec"]["containers"][0]
    container["resources"] = {"limits": {GPU: "1"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    if runs_s:
        made["metadata"]["annotations"]["lockstep.dev/runs-for"] = f"{runs_s:.0f}s"
    if on:
        made["spec"]["nodeSelector"] = {HOST: on}
    return made


def training(least: int, most: int, at_s: float) -> Json:
    made = elastic.fluid_job(0, at_s)
    made["metadata"]["name"] = "train"
    made["spec"]["tasks"] = [
        {"name": "worker", "replicas": most, "minAvailable": least, "template": template(GRACE_S)}
    ]
    made["spec"]["plugins"] = {"elastic": ["--task=worker", "--hold=10s"]}
    return made


def rigid(name: str, at_s: float, leaves_s: float, pods: Mapping[str, int]) -> Json:
    """A gang of so many pods by node; any node: an empty name."""
    tasks = [
        {"name": f"on{number}", "replicas": count, "template": template(on=where)}
        for number, (where, count) in enumerate(pods.items())
    ]
    times = {"lockstep.dev/arrives-at": f"{at_s:g}s", "lockstep.dev/leaves-at": f"{leaves_s:g}s"}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "annotations": times},
        "spec": {"schedulerName": "lockstep", "tasks": tasks},
    }


def seats(documents: Sequence[Json], at_s: float, seed: int) -> Seats:
    """Of the training at that time."""
    placed = [(SourceLocation("place", index), raw) for index, raw in enumerate(documents)]
    scheduler = new_scheduler((RACK,))
    Simulation(
        scenario.read(placed, ("lockstep",), (RACK,)), scheduler, seed=seed, until_s=at_s
    ).run()
    check_invariants(scheduler)
    return {
        int(pod.seen.name.removeprefix(TRAIN)): pod.node
        for pod in scheduler.state.pods.values()
        if pod.seen.name.startswith(TRAIN) and pod.node and pod.alive
    }


@dataclass(frozen=True, slots=True)
class Bert:
    """Seconds of a step before, and after four, two and four members; what would be by the highest numbers."""

    before: float
    after: float
    by_number: float
    sizes: tuple[int, int, int]


def bert(seed: int = 0) -> Bert:
    """Four members come onto two nodes, since three GPUs of each are in use at first."""
    nodes = [node("n0", "r0"), node("n1", "r0")]
    first = rigid("first", 0.0, 30.0, {"n0": 3, "n1": 3})
    other = rigid("other", 200.0, 400.0, {"": 6})
    day = [*nodes, first, training(2, 4, 1.0), other]
    whole, shrunk, last = (seats(day, at_s, seed) for at_s in (199.0, 399.0, 599.0))
    stay = sorted(whole)[: len(shrunk)]
    return Bert(
        STEP_S[len(set(whole.values()))],
        STEP_S[len(set(last.values()))],
        STEP_S[_most_together({number: whole[number] for number in stay}, len(last))],
        (len(whole), len(shrunk), len(last)),
    )


def _most_together(staying: Seats, size: int) -> int:
    """Nodes of a Job that grows where all other GPUs are free."""
    counts = Counter(staying.values())
    missing = size - sum(counts.values())
    free = sum(GPUS - count for count in counts.values())
    return len(counts) + (missing > free)


@dataclass(frozen=True, slots=True)
class Freed:
    """Racks without a member after all shrinks: what could be, what is, and what would be by the highest numbers."""

    possible: int
    ours: int
    by_number: int


def freed(seed: int) -> Freed:
    day = [*_racks(), *_arrivals(random.Random(seed))]
    at_first = seats(day, FIRST_S - 1, seed)
    last = seats(day, FIRST_S + EVERY_S * SHRINKS, seed)
    assert len(last) < len(at_first)
    by_rack = sorted(Counter(map(_rack, at_first.values())).values(), reverse=True)
    needed = next(n for n in range(RACKS + 1) if sum(by_rack[:n]) >= len(last))
    lowest = sorted(at_first)[: len(last)]
    return Freed(
        RACKS - needed,
        RACKS - len(set(map(_rack, last.values()))),
        RACKS - len({_rack(at_first[number]) for number in lowest}),
    )


def _racks() -> Iterable[Json]:
    for number in range(RACKS * NODES_OF_RACK):
        yield node(f"n{number:02}", f"r{number // NODES_OF_RACK:02}")


def _rack(name: str) -> int:
    return int(name.removeprefix("n")) // NODES_OF_RACK


def _arrivals(dice: random.Random) -> Iterable[Json]:
    """Other pods leave one after another, so that the training gets its members one after another."""
    yield ONLINE
    for number in range(RACKS * NODES_OF_RACK):
        for one in range(dice.randrange(GPUS + 1)):
            ends_s = dice.choice((dice.uniform(50, FIRST_S - 200), 1e6))
            yield _pod(f"other-{number}-{one}", f"n{number:02}", ends_s)
    yield training(8, RACKS * NODES_OF_RACK * GPUS, 1.0)
    pods = 0
    for step in range(SHRINKS):
        pods += dice.randrange(1, 21)
        yield service("web", pods, FIRST_S + EVERY_S * step, template())


def _pod(name: str, on: str, runs_s: float) -> Json:
    made = template(runs_s=runs_s, on=on)
    made["metadata"] |= {"name": name, "namespace": "default"}
    made["spec"]["schedulerName"] = "lockstep"
    return {"apiVersion": "v1", "kind": "Pod", **made}

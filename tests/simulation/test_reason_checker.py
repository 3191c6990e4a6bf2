"""The checker of reasons finds each number that is wrong by one, and `can never start` is said exactly of what does not
fit an empty cluster."""

import random
import re
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, PodGone, PodSeen, QueueSeen, SubGroups, Taint
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.names import GPU, RACK
from tests.central import factories
from tests.simulation.reason_checker import assert_reasons_true

SELECT = (("pool", "x"),)


def picky(plain: PodSeen) -> PodSeen:
    """The same pod with a node selector."""
    return replace(plain, spec=replace(plain.spec, node_selector=SELECT))


def busy_cluster(guarantee: int) -> Scheduler:
    """Pending gangs with reasons of each countable form. guarantee: GPUs kept for another queue."""
    cluster = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [
        QueueSeen("small", capability=((GPU, 12),)),
        QueueSeen("sure", guarantee=((GPU, guarantee),)),
        factories.node("a", rack="r1", labels={"pool": "x"}),
        factories.node("b", rack="r1"),
        factories.node("c", rack="r2", unschedulable=True),
        factories.node("d", rack="r2", cpu=1000),
        factories.node("e", taints=(Taint("dedicated", "x", "NoSchedule"),)),
        factories.report("a", factories.topology(8, sick=(7,))),
        factories.pod("runs", 3, node="a", phase="Running"),
        factories.pod(
            "mine", 8, node="b", phase="Running", queue="small", runs_for_s=600.0, started=0.0
        ),
    ]
    for name, gpus, size, more in GANGS:
        facts.append(factories.gang(name, size, created=float(len(facts)), **more))
        for rank in range(size):
            labels = (("set", str(rank // 2)),)
            pod = factories.pod(f"{name}-{rank}", gpus, gang=name, created=1.0, labels=labels)
            facts.append(picky(pod) if name == "picky" else pod)
    schedule_once(cluster, facts, 1.0)
    return cluster


GANGS: tuple[tuple[str, int, int, dict[str, object]], ...] = (
    ("head", 8, 2, {}),
    ("wide", 8, 2, {"topology_required": RACK}),
    ("behind", 8, 1, {}),
    ("picky", 8, 2, {}),
    ("nine", 9, 1, {}),
    ("over", 1, 5, {"queue": "small"}),
    ("huge", 1, 13, {"queue": "small"}),
    ("sets", 4, 8, {"subgroups": (SubGroups("s", 2, 4, keys=("set",), required=RACK),)}),
    ("pairs", 6, 2, {"subgroups": (SubGroups("s", 2, 1, keys=("set",), required="node"),)}),
)


def test_reasons_are_true_and_of_many_forms() -> None:
    said = ""
    for guarantee in (0, 10):
        cluster = busy_cluster(guarantee)
        assert_reasons_true(cluster)
        said += "\n".join(gang.attempt.reason for gang in cluster.state.pending.waiting.values())
    for form in (
        "GPUs free on",
        "reserved for ns/",
        "can never start: no node",
        "uses 8 of its",
        "cordoned",
        "4 subgroups of 2 pods",
    ):
        assert form in said, f"{form} is not in\n{said}"


@pytest.mark.parametrize("guarantee", [0, 10])
def test_every_number_that_is_wrong_by_one_is_found(guarantee: int) -> None:
    """Except those that only name things: requested GPUs, names of gangs, and times."""
    cluster = busy_cluster(guarantee)
    missed, tried = [], 0
    for gang in list(cluster.state.pending.waiting.values()):
        true = gang.attempt.reason
        counted = re.sub(
            r"reserved: .*|; \d+ (more )?(is|are) needed.*", lambda m: "#" * len(m[0]), true
        )
        for match in re.finditer(r"(?<![\w/-])\d+(?= |$|\))(?! GPUs?;| GPUs? and)", counted):
            if counted[: match.start()].endswith(" x "):
                continue
            for wrong in (int(match[0]) + 1, int(match[0]) - 1):
                gang.attempt.reason = true[: match.start()] + str(wrong) + true[match.end() :]
                tried += 1
                try:
                    assert_reasons_true(cluster)
                except AssertionError:
                    continue
                missed.append(gang.attempt.reason)
        gang.attempt.reason = true
    assert tried > 20
    assert missed == []


@pytest.mark.parametrize("seed", range(40))
def test_never_is_said_of_what_does_not_fit_an_empty_cluster(seed: int) -> None:
    dice = random.Random(seed)
    cluster = new_scheduler(factories.LEVELS)
    nodes: list[Fact] = [
        factories.node(
            f"n{i}",
            rack=f"r{i % 3}",
            gpus=dice.choice((2, 4, 8)),
            cpu=dice.choice((500, 4000)),
            labels={"pool": "x"} if dice.random() < 0.5 else None,
            taints=(Taint("dedicated", "x", "NoSchedule"),) if dice.random() < 0.2 else (),
        )
        for i in range(6)
    ]
    busy = [
        factories.pod(f"busy-{i}", 1, cpu=100, node=f"n{i}", phase="Running")
        for i in range(6)
        if dice.random() < 0.7
    ]
    size, gpus = dice.choice((1, 2, 5)), dice.choice((1, 4, 8, 9))
    choose = picky if dice.random() < 0.5 else replace
    level = dice.choice(("", "", RACK, "node"))
    gang: list[Fact] = [factories.gang("g", size, topology_required=level)]
    gang += [choose(factories.pod(f"g-{i}", gpus, gang="g", cpu=400)) for i in range(size)]
    schedule_once(cluster, [*nodes, *busy, *gang], 0.0)
    waits = cluster.state.pending.waiting.get(("ns", "g", True))
    never = waits is not None and "can never start" in waits.attempt.reason
    assert_reasons_true(cluster)
    schedule_once(cluster, [PodGone(pod.uid) for pod in busy], 1.0)
    assert never == (("ns", "g", True) in cluster.state.pending.waiting)

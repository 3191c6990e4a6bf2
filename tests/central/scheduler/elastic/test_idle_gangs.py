"""Gangs that leave their GPUs idle are evicted where their queue asks for it, and nowhere else."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import IDLE, Decision, Evict
from central.model.facts import Fact, GpusIdle, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.elastic.idle_gangs import FRESH_S
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

HOUR_S = 3600.0


class Cluster:
    """A gang of two GPU pods on two nodes, and a pod of it without GPUs."""

    def __init__(self, *queues: QueueSeen, queue: str = "lab") -> None:
        self.made: Scheduler = new_scheduler(factories.LEVELS)
        pods = [factories.pod(f"g-{at}", gpus, "g") for at, gpus in enumerate((8, 8, 0))]
        self.step(
            *(factories.node(name) for name in "ab"),
            *queues,
            factories.gang("g", 3, queue=queue),
            *pods,
        )
        self.nodes = {each.seen.name: each.node for each in self.made.state.pods.values()}
        self.step(*(replace(one, node=self.nodes[one.name], phase="Running") for one in pods))
        assert {self.nodes["g-0"], self.nodes["g-1"]} == {"a", "b"}

    def step(self, *facts: Fact, now: float = 0.0) -> list[Decision]:
        decisions = schedule_once(self.made, list(facts), now)
        check_invariants(self.made)
        return decisions

    def idle(self, now: float, **seconds: float) -> dict[str, str]:
        """The evicted pods, with the reasons, after reports of these pods."""
        facts = [
            GpusIdle(self.nodes[name], (("ns", name, idle_s),))
            for name, idle_s in ((f"g-{key[1:]}", value) for key, value in seconds.items())
        ]
        evicted = [each for each in self.step(*facts, now=now) if isinstance(each, Evict)]
        assert {each.cause for each in evicted} <= {IDLE}
        return {each.name: each.why for each in evicted}


def lab(idle_s: float | None = HOUR_S, **more: object) -> QueueSeen:
    return QueueSeen("lab", uid="u", idle_s=idle_s, **more)  # type: ignore[arg-type]  # fields by name


def test_an_idle_gang_is_evicted_as_a_whole_with_its_reason() -> None:
    found = Cluster(lab()).idle(4000.0, g0=HOUR_S, g1=HOUR_S + 60)
    assert found.keys() == {"g-0", "g-1", "g-2"}
    assert set(found.values()) == {
        "gang g has left its GPUs idle for 60 min, the idleTimeout of queue lab"
    }


@pytest.mark.parametrize("idle_s", [None, 0.0])
def test_it_is_never_evicted_without_being_asked_for(idle_s: float | None) -> None:
    made = Cluster(lab(idle_s))
    assert made.idle(90_000.0, g0=80_000.0, g1=80_000.0) == {}


def test_a_queue_above_asks_for_it_and_one_below_may_refuse() -> None:
    above = QueueSeen("all", uid="a", idle_s=HOUR_S)
    assert Cluster(above, lab(None, parent="all")).idle(4000.0, g0=HOUR_S, g1=HOUR_S)
    assert not Cluster(above, lab(0.0, parent="all")).idle(4000.0, g0=HOUR_S, g1=HOUR_S)


def test_one_busy_pod_keeps_the_gang() -> None:
    """Or one of which nothing is known, or only for too short a time."""
    assert Cluster(lab()).idle(4000.0, g0=HOUR_S) == {}
    assert Cluster(lab()).idle(4000.0, g0=HOUR_S, g1=HOUR_S - 1) == {}


def test_a_pod_that_is_busy_again_keeps_the_gang() -> None:
    """Its node reports no idle pods any more; the other one had begun to idle later."""
    made = Cluster(lab())
    assert made.idle(4000.0, g0=HOUR_S, g1=HOUR_S - 60) == {}
    made.step(GpusIdle(made.nodes["g-0"], ()), now=4030.0)
    assert made.idle(4060.0, g1=HOUR_S) == {}


def test_what_was_said_long_ago_does_not_count() -> None:
    made = Cluster(lab())
    assert made.idle(4000.0, g0=HOUR_S) == {}
    made.step(now=4000.0 + FRESH_S + 1)
    assert made.idle(4000.0 + FRESH_S + 2, g1=HOUR_S) == {}
    assert made.idle(4000.0 + FRESH_S + 60, g0=HOUR_S)


def test_reports_of_pods_that_are_not_there_are_ignored() -> None:
    made = Cluster(lab())
    other = {"a": "b", "b": "a"}
    facts = [GpusIdle(other[made.nodes[name]], (("ns", name, 9e9),)) for name in ("g-0", "g-1")]
    assert not [each for each in made.step(*facts, now=9.0) if isinstance(each, Evict)]
    assert made.step(GpusIdle("nowhere", (("ns", "g-0", 9e9),)), now=10.0) == []

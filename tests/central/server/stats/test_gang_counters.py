"""What happened to gangs, counted from the scheduler's own cycles."""

from collections.abc import Sequence
from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Evict
from central.model.facts import BindDone, BindFailed, Fact, PodSeen, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.server.stats.gang_counters import GangCounters
from protos.names import GPU
from tests.central import factories


class Days:
    """A scheduler whose bindings succeed, with counters beside it."""

    def __init__(self, scheduler: Scheduler | None = None) -> None:
        self.scheduler = scheduler or new_scheduler(factories.LEVELS)
        self.counters = GangCounters(self.scheduler)
        self.pods: dict[str, PodSeen] = {}

    def cycle(self, now: float, *facts: Fact) -> list[Evict]:
        """Binds what is decided, a second later, and starts it."""
        self._note(facts)
        decisions = schedule_once(self.scheduler, facts, now)
        self.counters.observe(facts, decisions)
        after: list[Fact] = []
        for bind in decisions:
            if isinstance(bind, Bind):
                pod = replace(self.pods[bind.pod], node=bind.node, phase="Running", started=now + 1)
                after += [BindDone(bind.pod, bind.node), pod]
        if after:
            self._note(after)
            self.counters.observe(after, schedule_once(self.scheduler, after, now + 1))
        return [each for each in decisions if isinstance(each, Evict)]

    def _note(self, facts: Sequence[Fact]) -> None:
        self.pods.update((fact.uid, fact) for fact in facts if isinstance(fact, PodSeen))


def base(*queues: str) -> list[Fact]:
    return [factories.node("n"), factories.report("n"), *map(QueueSeen, queues or ("q",))]


def pod(name: str, gpus: int, **other: object) -> PodSeen:
    return factories.pod(name, gpus, queue="q", **other)  # type: ignore[arg-type]  # a test's shorthand


def test_a_gang_waits_starts_and_completes() -> None:
    days = Days()
    days.cycle(100.0, *base(), pod("one", 8, created=40.0))
    counters = days.counters
    assert counters.gangs["started"] == {"q": 1}
    waits = counters.waits["q"]
    assert (sum(waits.counts), waits.total) == (1, 60.0)
    assert waits.counts[waits.bounds.index(60.0)] == 1
    assert (sum(counters.binds.counts), counters.binds.total) == (1, 61.0)
    days.cycle(200.0, replace(days.pods["uid-one"], phase="Succeeded"))
    assert counters.gangs["completed"] == {"q": 1}
    assert not counters.gangs["failed"]


def test_a_refused_binding_is_no_start() -> None:
    days, wanted = Days(), pod("one", 8, created=40.0)
    decisions = schedule_once(days.scheduler, facts := [*base(), wanted], 100.0)
    days.counters.observe(facts, decisions)
    (bind,) = (each for each in decisions if isinstance(each, Bind))
    assert not days.counters.gangs["started"], "the API server has not answered"
    refused: list[Fact] = [BindFailed(bind.pod, bind.node, "no")]
    days.counters.observe(refused, schedule_once(days.scheduler, refused, 101.0))
    days.cycle(200.0, wanted)
    assert days.counters.gangs["started"] == {"q": 1}
    assert days.counters.waits["q"].total == 160.0


def test_a_gang_that_fails() -> None:
    days = Days()
    days.cycle(100.0, *base(), pod("one", 8))
    days.cycle(200.0, replace(days.pods["uid-one"], phase="Failed"))
    assert (days.counters.gangs["failed"], days.counters.gangs["completed"]) == ({"q": 1}, {})


def test_a_restart_counts_nothing_again() -> None:
    days = Days()
    days.cycle(100.0, *base(), pod("one", 4), pod("two", 8))
    again = Days()
    again.cycle(300.0, *base(), *days.pods.values())
    assert (days.counters.gangs["started"], again.counters.gangs["started"]) == ({"q": 1}, {})
    ended = replace(days.pods["uid-one"], phase="Succeeded")
    later = Days()
    later.cycle(400.0, *base(), ended)
    assert not later.counters.gangs["completed"]
    again.cycle(500.0, ended)
    assert again.counters.gangs["completed"] == {"q": 1}


def test_evictions_by_cause_and_the_work_that_they_lose() -> None:
    days = Days()
    days.cycle(100.0, *base(), pod("low", 8))
    running = replace(days.pods["uid-low"], checkpoint=131.0)
    days.cycle(150.0, running)
    evictions = days.cycle(161.0, pod("urgent", 8, priority=10))
    assert [(each.name, each.cause) for each in evictions] == [("low", "preemption")]
    assert days.counters.evictions == {("q", "preemption"): 1}
    assert days.counters.lost_gpu_s == {("q", "preemption"): 8 * (161 - 131)}


def test_reclaim_is_another_cause() -> None:
    days = Days()
    entitled = QueueSeen("r", deserved=((GPU, 8),))
    days.cycle(100.0, *base("q"), entitled, pod("rich", 8))
    evictions = days.cycle(200.0, factories.pod("poor", 8, queue="r", created=1.0))
    assert [(each.name, each.cause) for each in evictions] == [("rich", "reclaim")]
    assert days.counters.evictions == {("q", "reclaim"): 1}

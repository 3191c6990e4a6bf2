"""What gangs that share time have run is known to a scheduler that begins anew, whenever the one before went."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Decision, UpdateGangStatus
from central.model.facts import Fact, GangSeen, PodGone, PodSeen, QueueSeen
from central.model.past_turns import PastTurns
from central.scheduler.cycle import schedule_once
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

NODE, QUEUE = factories.node("n0"), QueueSeen("default", quantum_s=600.0)
NOW = 1000.0
RUNS, RAN = PastTurns(100, 1.0, 500, runs=True), PastTurns(100, 1.0, 500)


def pod(rank: int = 0, **fields: object) -> PodSeen:
    """One that was made before the condition was written, unless the fields say otherwise."""
    one = factories.pod(f"g-{rank}", 4, "g", suspension_s=10.0, created=400.0)
    return replace(one, **fields)  # type: ignore[arg-type]  # a test's shorthand


def placed(rank: int = 0, **fields: object) -> PodSeen:
    return pod(rank, **{"node": "n0", "phase": "Running", "started": 500.0, **fields})


def ran_s(group: GangSeen, pods: Sequence[PodSeen], now: float) -> float:
    """In all, as a scheduler finds it that meets these facts, and the next one after it."""
    turns = past_turns(group, pods, now)
    again = past_turns(replace(group, past_turns=turns), pods, now)
    assert again == turns
    return turns.ran_s + turns.runs * (now - turns.until)


def past_turns(group: GangSeen, pods: Sequence[PodSeen], now: float) -> PastTurns:
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [NODE, QUEUE, group, *pods], now)
    gang = scheduler.state.gangs["ns", group.name, True]
    turns = scheduler.preemption.time_sharing.past_turns(gang)
    assert turns is not None
    return turns


NEW = pod(created=800.0)
ENDED = placed(phase="Succeeded", ended=700.0)
DELETED = placed(deleting=True, ended=700.0)


@pytest.mark.parametrize(
    ("before", "pods", "expected_s"),
    [
        (RUNS, [placed()], 600.0),
        (RUNS, [placed(started=None)], 600.0),
        (RUNS, [ENDED], 300.0),
        (RUNS, [DELETED], 300.0),
        (RUNS, [NEW], 400.0),  # the run ended before its pod was made again
        (RUNS, [NEW, pod(1, created=900.0)], 400.0),
        (RUNS, [ENDED, pod(1, created=900.0)], 300.0),
        (RUNS, [placed(started=850.0, created=800.0)], 550.0),
        (RUNS, [ENDED, placed(1, phase="Failed", ended=650.0)], 300.0),
        (RUNS, [pod()], 100.0),  # its binding failed
        (RAN, [NEW], 100.0),
        (RAN, [placed(started=300.0, deleting=True, ended=500.0)], 100.0),
        (RAN, [placed(started=300.0, phase="Failed", ended=450.0)], 100.0),
        (RAN, [placed(started=300.0)], 600.0),  # its eviction was refused
        (RAN, [placed(started=600.0, created=550.0)], 500.0),
        (RAN, [placed(started=600.0, created=550.0, phase="Succeeded", ended=650.0)], 150.0),
        (None, [placed()], 500.0),
        (None, [placed(started=300.0)], 700.0),
        (None, [ENDED], 200.0),
        (None, [placed(phase="Succeeded")], 0.0),  # nobody knows when it ended
        (None, [placed(started=450.0, phase="Failed", ended=480.0), placed(1)], 530.0),
        (None, [placed(phase="Failed", ended=600.0), placed(1, started=550.0)], 500.0),
        (PastTurns(100, 1.0, 5000, runs=True), [placed()], 100.0),  # another clock, or a stranger
        (PastTurns(100, 1.0, 0, runs=True), [NEW], 900.0),
    ],
)
def test_every_second_counts_once(
    before: PastTurns | None, pods: list[PodSeen], expected_s: float
) -> None:
    """Nobody led between the condition and now."""
    group = factories.gang("g", len(pods), created=400.0, past_turns=before)
    assert ran_s(group, pods, NOW) == expected_s


class Kept(World):
    """Keeps what an API server would keep."""

    def __init__(self, *nodes: Fact) -> None:
        self.kept: dict[str, Fact] = {}
        self.conditions: dict[str, list[PastTurns | None]] = {}
        super().__init__(*nodes)

    def _check(self) -> None:
        """Others look at such days."""

    def _cycle(self, facts: Sequence[Fact], now: float) -> list[Decision]:
        for fact in facts:
            if isinstance(fact, PodSeen):
                self.kept[fact.uid] = replace(fact, ended=now if fact.phase != "Pending" else None)
            elif isinstance(fact, PodGone):
                del self.kept[fact.uid]
        return super()._cycle(facts, now)

    def _apply(self, decision: Decision, now: float) -> str:
        if isinstance(decision, UpdateGangStatus):
            self.conditions.setdefault(decision.gang, [None]).append(decision.past_turns)
        name = super()._apply(decision, now)
        for uid, fact in self.running.items():
            known = self.kept.get(uid)
            assert isinstance(known, PodSeen)
            if known.node != fact.node:
                self.running[uid] = self.kept[uid] = replace(fact, started=now)
            elif known.deleting != fact.deleting:
                self.kept[uid] = replace(fact, ended=now)
        return name


def _made_again(there: Kept, whole: Sequence[Fact], now: float) -> Iterator[Fact]:
    for fact in whole:
        if isinstance(fact, PodSeen) and fact.uid not in there.kept:
            yield replace(fact, created=now)


HOURS = {"a": 1.2, "b": 0.3, "c": 0.5, "d": 0.8}


@pytest.mark.long
def test_whenever_the_leader_goes_the_next_one_knows_what_was_run() -> None:
    """Also if it goes before it has written the last condition, apart from the pods' grace."""
    facts = {n: job(n, 2, 4, 3600 * hours, suspension_s=10.0) for n, hours in HOURS.items()}
    there = Kept(NODE, QUEUE)
    there.grace_s, now = 30.0, 60.0
    there.step(now, *(fact for each in facts.values() for fact in each))
    looked = 0
    while now == 60.0 or there.ends or there.leaving:
        now += 60.0
        writes = sum(map(len, there.conditions.values()))
        there.step(
            now, *(fact for each in facts.values() for fact in _made_again(there, each, now))
        )
        if now % 1800 and sum(map(len, there.conditions.values())) == writes:
            continue
        for name in facts:
            gang = there.cluster.state.gangs["ns", name, True]
            turns = there.cluster.preemption.time_sharing.past_turns(gang)
            assert turns is not None
            true_s = turns.ran_s + turns.runs * (now - turns.until)
            members = [p for p in there.kept.values() if isinstance(p, PodSeen) and p.gang == name]
            for before, apart_s in zip(there.conditions[name][-1:-3:-1], (2.0, 65.0), strict=True):
                group = facts[name][0]
                assert isinstance(group, GangSeen)
                found_s = ran_s(replace(group, past_turns=before), members, now)
                assert found_s == pytest.approx(true_s, abs=apart_s), (name, now, before)
                looked += turns.ran_s > 0
    assert len(there.evicted) >= 4, "they took turns"
    assert looked > 50

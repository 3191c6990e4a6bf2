"""The loop applies every listed fact before it decides, publishes plans before it binds, and answers
questions between cycles."""

import gc
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import Fact, HyperNodeSeen, Member, NodeSilent
from central.scheduler import gang_attempt
from central.scheduler.inventory.cluster_node import NodePlan
from central.server import loop as loop_module
from central.server.journal import Journal
from central.server.loop import LONG_ASKED_S, LONG_S, SLICE_S, LongAttempt, Loop, SliceBudget
from central.server.queries import ClusterQueries
from central.server.replay import replay
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants, check_journal
from tests.fakes.eventually import eventually


class World:
    """Records binds and published plans in their order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.plans: dict[str, NodePlan] = {}
        self.bound = threading.Event()

    def submit(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Bind):
                self.log.append(f"bind {decision.name} to {decision.node}")
                self.bound.set()

    def publish(self, plans: Mapping[str, NodePlan]) -> None:
        self.plans.update(plans)
        self.log += [f"plans of {name}: {len(plan.grants)}" for name, plan in plans.items()]


@contextmanager
def running(loop: Loop, world: World) -> Iterator[None]:
    thread = threading.Thread(target=loop.run, args=(world.submit, world.publish))
    thread.start()
    try:
        yield
    finally:
        loop.stop()
        thread.join(5.0)
        assert not thread.is_alive()


def test_garbage_is_collected_seldom_while_the_initial_list_is_read() -> None:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    world, listed = World(), threading.Event()
    loop = Loop(new_scheduler(factories.LEVELS), ready=listed.is_set)
    try:
        with running(loop, world):
            loop.ask(check_invariants)
            assert not loop.synced
            assert gc.get_threshold() == (30_000, 20, 20)
    finally:
        gc.set_threshold(*before)


def test_a_slice_leaves_half_of_its_time_to_the_attempts() -> None:
    """However long the facts took before the first of them; each that begins is counted."""
    for first_s in (0.0, 0.5 * SLICE_S, 0.9 * SLICE_S, 3 * SLICE_S):
        times = iter([0.0, first_s, *(first_s + SLICE_S * tenth / 10 for tenth in range(1, 20))])
        budget = SliceBudget(lambda times=times: next(times))  # type: ignore[misc]
        end = max(SLICE_S, first_s + SLICE_S / 2)
        begun = 0
        while not budget():
            begun += 1
            assert budget.more == begun
        expected = [first_s + SLICE_S * tenth / 10 for tenth in range(20)]
        assert begun == sum(at < end - 1e-9 for at in expected)
        assert budget.more == begun


def test_a_long_attempt_ends_as_soon_as_those_that_wait_by_then_ask() -> None:
    now, allowed_s = 100.0, 5.0
    long = LongAttempt(lambda: now, lambda: allowed_s)
    for at, waits_s, ends in ((100.0, 5.0, False), (104.9, 5.0, False), (101.0, 1.0, True)):
        now, allowed_s = at, waits_s
        assert long(7) == ends
        assert long.interrupted_at == (7 if ends else None)


def test_what_comes_shortens_a_long_attempt() -> None:
    loop = Loop(new_scheduler(factories.LEVELS), ready=lambda: False)
    assert loop._allowed_s == inf
    loop.put(factories.node("a"))
    loop.put(factories.pod("a", 1, node="a"))
    assert loop._allowed_s == inf, "nothing that waits"
    loop.put(factories.pod("b", 1))
    assert loop._allowed_s == LONG_S
    loop._drain_inbox(0.0)
    assert loop._allowed_s == inf
    with pytest.raises(TimeoutError):
        loop.ask(lambda _: None, timeout_s=0.0)
    assert loop._allowed_s == LONG_ASKED_S
    loop.stop()
    assert loop._allowed_s == 0.0


def test_nothing_is_decided_before_the_initial_sync() -> None:
    world, listed = World(), threading.Event()
    loop = Loop(new_scheduler(factories.LEVELS), ready=listed.is_set)
    with running(loop, world):
        for fact in (factories.node("a"), factories.report("a"), factories.pod("one", 2)):
            loop.put(fact)
        assert loop.ask(lambda scheduler: list(scheduler.state.pods)) == ["uid-one"]
        assert not world.log
        listed.set()
        loop.put(factories.pod("two", 1))
        assert world.bound.wait(60.0)
        loop.ask(check_invariants)
    assert world.log[-2:] == ["bind one to a", "bind two to a"]


def test_everything_listed_is_applied_before_the_first_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An initial list may be longer than one batch."""
    monkeypatch.setattr(loop_module, "BATCH", 10)
    world = World()
    loop = Loop(new_scheduler(factories.LEVELS), ready=lambda: True)
    for number in range(35):
        loop.put(factories.node(f"n{number:02}", gpus=1))
    loop.put(factories.pod("new", 1))
    for number in range(35):
        loop.put(
            factories.pod(f"old-{number}", 1, node=f"n{number:02}", phase="Running", ours=False)
        )
    loop.put(factories.node("last"))
    with running(loop, world):
        assert world.bound.wait(60.0)
    assert [line for line in world.log if line.startswith("bind")] == ["bind new to last"]


def test_plans_are_published_before_the_pods_are_bound() -> None:
    world = World()
    loop = Loop(new_scheduler(factories.LEVELS), ready=lambda: True)
    with running(loop, world):
        for fact in (factories.node("a"), factories.report("a"), factories.pod("one", 2)):
            loop.put(fact)
        assert world.bound.wait(60.0)
    assert world.log.index("plans of a: 1") < world.log.index("bind one to a")
    assert world.plans["a"].grants == (replace(factories.grant("one", 0, 1), uid="uid-one"),)


def test_its_journal_replays(tmp_path: Path) -> None:
    world, listed, scheduler = World(), threading.Event(), new_scheduler(factories.LEVELS)
    kept = Journal(tmp_path / "live.journal", scheduler)
    loop = Loop(scheduler, ready=listed.is_set, journal=kept)
    with running(loop, world):
        for fact in (factories.node("a"), factories.report("a"), factories.pod("one", 2)):
            loop.put(fact)
        assert loop.ask(lambda scheduler: list(scheduler.state.pods)) == ["uid-one"]
        listed.set()
        loop.put(factories.pod("two", 9))
        assert world.bound.wait(60.0)
    kept.close()
    check_journal(str(tmp_path / "live.journal"))
    done = replay(str(tmp_path / "live.journal"))
    assert (done.facts, done.decisions) == (4, 3)  # a bind and two status updates


def test_sources_are_read_in_every_cycle() -> None:
    def silent(now: float) -> Iterable[Fact]:
        return [NodeSilent("a")]

    loop = Loop(new_scheduler(factories.LEVELS), ready=lambda: True)
    loop.add_source(silent)
    with running(loop, World()):
        loop.put(factories.node("a"))
        assert loop.ask(check_invariants) is None
        assert loop.ask(lambda scheduler: scheduler.state.nodes["a"].silent)


def test_an_exception_in_a_question_is_raised_to_its_asker() -> None:
    loop = Loop(new_scheduler(factories.LEVELS), ready=lambda: True)
    with running(loop, World()):
        with pytest.raises(KeyError):
            loop.ask(lambda scheduler: scheduler.state.nodes["nowhere"])
        assert loop.ask(lambda scheduler: len(scheduler.state.nodes)) == 0


def test_facts_that_arrive_together_share_a_cycle() -> None:
    """A watch delivers a gang's pods one by one: a cycle for each would be wasteful. Questions are
    answered between two cycles, so all that one of them puts arrives before the next."""
    cycles: list[int] = []

    def on_cycle(facts: Sequence[Fact], decisions: object, seconds: float) -> None:
        cycles.append(len(facts))

    def put_all(_: object) -> None:
        for number in range(200):
            loop.put(factories.node(f"n{number}"))

    loop = Loop(new_scheduler(factories.LEVELS), ready=lambda: True, on_cycle=on_cycle)
    with running(loop, World()):
        loop.ask(put_all)
        assert loop.ask(lambda scheduler: len(scheduler.state.nodes)) == 200
    assert [facts for facts in cycles if facts] == [200]


def test_problems_of_hypernodes_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    loop = Loop(new_scheduler(factories.LEVELS), ready=lambda: True)
    with caplog.at_level("INFO"), running(loop, world):
        loop.put(HyperNodeSeen("s1", 2, (Member("HyperNode", "s0"),)))
        loop.ask(lambda scheduler: None)
        loop.put(factories.node("a"))
        loop.ask(lambda scheduler: None)
        logged = [record.message for record in caplog.records if "HyperNode" in record.message]
        assert logged == ["HyperNode s1: member s0 does not exist"]
        assert ClusterQueries(loop).troubles == ("HyperNode s1: member s0 does not exist",)
        loop.put(HyperNodeSeen("s0", 1, (Member("Node", "a"),)))
        loop.ask(lambda scheduler: None)
        assert "HyperNode s1: valid again" in caplog.messages
        assert ClusterQueries(loop).troubles == ()


def test_a_long_cycle_is_cut_and_its_journal_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice of no length: each cycle makes one attempt. Questions are answered between them."""
    monkeypatch.setattr(loop_module, "SLICE_S", 0.0)
    world, scheduler, cycles = World(), new_scheduler(factories.LEVELS), 0

    def on_cycle(*_: object) -> None:
        nonlocal cycles
        cycles += 1

    kept = Journal(tmp_path / "cut.journal", scheduler)
    loop = Loop(scheduler, ready=lambda: True, journal=kept, on_cycle=on_cycle)
    loop.put(factories.node("a"))
    for number in range(20):
        loop.put(factories.pod(f"p{number:02}", 1, cpu=number + 1))
    with running(loop, world):
        eventually(
            lambda: loop.ask(
                lambda it: len(it.state.pending.waiting) == 12 and it.state.pending.round is None
            )
        )
    kept.close()
    assert cycles >= 20
    assert [line for line in world.log if "bind" in line] == [
        f"bind p{i:02} to a" for i in range(8)
    ]
    check_journal(str(tmp_path / "cut.journal"))
    assert replay(str(tmp_path / "cut.journal")).decisions > 20


@pytest.mark.slow
@pytest.mark.timeout(900)  # it takes 25 s of processor time, on a busy machine 3 minutes
def test_a_long_attempt_gives_way_and_its_journal_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim of 4,000 victims takes more work than an attempt in a cycle with others may. While pods arrive, it
    gives way at once; else it comes to its end."""
    monkeypatch.setattr(loop_module, "LONG_S", 0.0)
    monkeypatch.setattr(gang_attempt, "LIMITED_MAX_S", 0.5)
    monkeypatch.setattr(gang_attempt, "LONG_S", 0.0)
    world, scheduler = World(), new_scheduler(factories.LEVELS)
    kept = Journal(tmp_path / "long.journal", scheduler)
    evicted, arrived = threading.Event(), 0

    def on_cycle(_: object, decisions: Sequence[Decision], took_s: float) -> None:
        if any(isinstance(decision, Evict) for decision in decisions):
            evicted.set()

    def arrive(_: float) -> list[Fact]:
        """In each cycle a pod arrives after the inbox was read, until an attempt has given way."""
        nonlocal arrived
        if b'"interrupted"' not in (tmp_path / "long.journal").read_bytes():
            arrived += 1
            loop.put(factories.pod(f"new-{arrived}"))
        return []

    loop = Loop(scheduler, ready=lambda: True, journal=kept, on_cycle=on_cycle)
    loop.add_source(arrive)
    for number in range(1000):
        loop.put(factories.node(f"n{number:03}"))
        for gpu in range(8):
            name, node = f"s-{number}-{gpu}", f"n{number:03}"
            loop.put(factories.pod(name, 1, node=node, phase="Running", started=float(gpu)))
    loop.put(factories.gang("urgent", 500, priority=10))
    for rank in range(500):
        loop.put(factories.pod(f"urgent-{rank}", 8, "urgent"))
    with running(loop, world):  # nobody asks: a question ends an attempt, too
        assert evicted.wait(600.0)
    kept.close()
    assert b'"interrupted"' in (tmp_path / "long.journal").read_bytes()
    assert replay(str(tmp_path / "long.journal")).decisions > 4000


def test_no_cycle_takes_a_flood_of_facts_at_once() -> None:
    """Facts and questions of others are not behind all of it."""
    world, cycles = World(), list[int]()
    most = loop_module.BATCH_SYNCED
    loop = Loop(
        new_scheduler(factories.LEVELS),
        ready=lambda: True,
        on_cycle=lambda facts, decisions, took_s: cycles.append(len(facts)),
    )

    def flood(_: object) -> None:
        for number in range(2 * most + 10):
            loop.put(NodeSilent(f"n{number}"))

    with running(loop, world):
        eventually(lambda: loop.synced)
        loop.ask(flood)
        loop.put(factories.node("a"))
        loop.put(factories.pod("one", 1))
        assert world.bound.wait(30.0)
    assert max(cycles) == most
    assert sum(cycles) == 2 * most + 12

"""The one thread that owns the cluster: believes before it decides, tells agents before it binds, and
answers between turns."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from central.model.decisions import Bind, Decision
from central.model.facts import Fact, HyperNodeSeen, Member, NodeSilent
from central.scheduler.state.cluster import Cluster
from central.server import loop as loop_module
from central.server.journal import Journal
from central.server.loop import Loop
from central.server.queries import ClusterBooks
from central.server.replay import replay
from protos.topology import Grant
from tests.central import factories


class World:
    """Remembers, in order, what it was asked to do."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.grants: dict[str, tuple[Grant, ...]] = {}
        self.bound = threading.Event()

    def submit(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Bind):
                self.log.append(f"bind {decision.name} to {decision.node}")
                self.bound.set()

    def publish(self, grants: Mapping[str, tuple[Grant, ...]]) -> None:
        self.grants.update(grants)
        self.log += [f"intents of {name}: {len(found)}" for name, found in grants.items()]


@contextmanager
def running(loop: Loop, world: World) -> Iterator[None]:
    thread = threading.Thread(target=loop.run, args=(world, world))
    thread.start()
    try:
        yield
    finally:
        loop.stop()
        thread.join(5.0)
        assert not thread.is_alive()


def test_nothing_is_decided_before_all_is_listed() -> None:
    world, listed = World(), threading.Event()
    loop = Loop(Cluster(factories.LEVELS), ready=listed.is_set)
    with running(loop, world):
        for fact in (factories.node("a"), factories.report("a"), factories.pod("one", 2)):
            loop.put(fact)
        assert loop.ask(lambda cluster: list(cluster.pods)) == ["uid-one"]
        assert not world.log
        listed.set()
        loop.put(factories.pod("two", 1))
        assert world.bound.wait(5.0)
        loop.ask(lambda cluster: cluster.check())
    assert world.log[-2:] == ["bind one to a", "bind two to a"]


def test_all_that_was_listed_is_believed_before_the_first_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A listing may be longer than what one turn takes from the inbox."""
    monkeypatch.setattr(loop_module, "BATCH", 10)
    world = World()
    loop = Loop(Cluster(factories.LEVELS), ready=lambda: True)
    for number in range(35):
        loop.put(factories.node(f"n{number:02}", gpus=1))
    loop.put(factories.pod("new", 1))
    for number in range(35):
        loop.put(
            factories.pod(f"old-{number}", 1, node=f"n{number:02}", phase="Running", ours=False)
        )
    loop.put(factories.node("last"))
    with running(loop, world):
        assert world.bound.wait(5.0)
    assert [line for line in world.log if line.startswith("bind")] == ["bind new to last"]


def test_agents_know_before_the_pods_are_bound() -> None:
    world = World()
    loop = Loop(Cluster(factories.LEVELS), ready=lambda: True)
    with running(loop, world):
        for fact in (factories.node("a"), factories.report("a"), factories.pod("one", 2)):
            loop.put(fact)
        assert world.bound.wait(5.0)
    assert world.log.index("intents of a: 1") < world.log.index("bind one to a")
    assert world.grants["a"] == (factories.grant("one", 0, 1),)


def test_its_journal_is_decided_again(tmp_path: Path) -> None:
    world, listed, cluster = World(), threading.Event(), Cluster(factories.LEVELS)
    kept = Journal(tmp_path / "live.journal", cluster)
    loop = Loop(cluster, ready=listed.is_set, journal=kept)
    with running(loop, world):
        for fact in (factories.node("a"), factories.report("a"), factories.pod("one", 2)):
            loop.put(fact)
        assert loop.ask(lambda cluster: list(cluster.pods)) == ["uid-one"]
        listed.set()
        loop.put(factories.pod("two", 9))
        assert world.bound.wait(5.0)
    kept.close()
    done = replay(str(tmp_path / "live.journal"), check=True)
    assert (done.facts, done.decisions) == (4, 3)  # one bound and told, one told to wait


def test_facts_by_the_clock_come_with_every_turn() -> None:
    def silent(now: float) -> Iterable[Fact]:
        return [NodeSilent("a")]

    loop = Loop(Cluster(factories.LEVELS), ready=lambda: True)
    loop.listen(silent)
    with running(loop, World()):
        loop.put(factories.node("a"))
        assert loop.ask(lambda cluster: cluster.check()) is None
        assert loop.ask(lambda cluster: cluster.nodes["a"].silent)


def test_a_question_that_fails_is_the_askers_matter() -> None:
    loop = Loop(Cluster(factories.LEVELS), ready=lambda: True)
    with running(loop, World()):
        with pytest.raises(KeyError):
            loop.ask(lambda cluster: cluster.nodes["nowhere"])
        assert loop.ask(lambda cluster: len(cluster.nodes)) == 0


def test_what_comes_together_is_decided_in_one_turn() -> None:
    """A watch tells a gang's pods one by one: a turn for each would cost more than it is worth."""
    turns: list[int] = []

    class Meter:
        def turned(self, facts: Sequence[Fact], decisions: object, seconds: float) -> None:
            turns.append(len(facts))

    loop = Loop(Cluster(factories.LEVELS), ready=lambda: True, meter=Meter())
    with running(loop, World()):
        for number in range(200):
            loop.put(factories.node(f"n{number}"))
            time.sleep(0.0005)
        assert loop.ask(lambda cluster: len(cluster.nodes)) == 200
    assert sum(turns) == 200
    assert len(turns) < 60


def test_what_is_wrong_with_the_tree_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    loop = Loop(Cluster(factories.LEVELS), ready=lambda: True)
    with caplog.at_level("INFO"), running(loop, world):
        loop.put(HyperNodeSeen("s1", 2, (Member("HyperNode", "s0"),)))
        loop.ask(lambda cluster: None)
        loop.put(factories.node("a"))
        loop.ask(lambda cluster: None)
        told = [record.message for record in caplog.records if "HyperNode" in record.message]
        assert told == ["HyperNode s1: member s0 does not exist"]
        assert ClusterBooks(loop).troubles == ("HyperNode s1: member s0 does not exist",)
        loop.put(HyperNodeSeen("s0", 1, (Member("Node", "a"),)))
        loop.ask(lambda cluster: None)
        assert "HyperNode s1: nothing is wrong with it any more" in caplog.messages
        assert ClusterBooks(loop).troubles == ()

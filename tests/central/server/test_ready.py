"""When a leader that starts decides: all kinds are listed, and each node with GPUs has reported or had its time."""

from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.kube.transport.runtime import OsRuntime
from central.model.facts import NodeGone, NodeSeen
from central.scheduler import cycle
from central.server.leader_parts import Ready
from protos.names import GPU
from tests.central import factories

WAIT_S = 10.0


class Clock(OsRuntime):
    now = 500.0

    def monotonic(self) -> float:
        return self.now


class World:
    def __init__(self) -> None:
        self.clock, self.listed = Clock(), False
        self.scheduler = new_scheduler(factories.LEVELS)
        self.ready = Ready(self.scheduler, WAIT_S, self.clock)

    def list(self, *facts: object) -> None:
        self.ready.listed = lambda: self.listed
        cycle.apply_facts(self.scheduler, facts, 0.0)  # type: ignore[arg-type]
        self.listed = True


def node(name: str, gpus: int = 8) -> NodeSeen:
    found = factories.node(name)
    return replace(found, allocatable={**found.allocatable, GPU: gpus})


def test_nothing_is_decided_before_all_is_listed() -> None:
    world = World()
    assert not world.ready()
    world.ready.listed = lambda: world.listed
    world.clock.now += 10 * WAIT_S
    assert not world.ready(), "time alone is no list"


def test_a_cluster_whose_agents_have_all_reported() -> None:
    world = World()
    world.list(node("a"), node("b"), factories.report("a"))
    assert not world.ready()
    cycle.apply_facts(world.scheduler, [factories.report("b")], 0.0)
    assert world.ready()


def test_nodes_without_gpus_have_no_agent_to_wait_for() -> None:
    world = World()
    world.list(node("cpu", 0), node("a"), factories.report("a"))
    assert world.ready()


def test_an_agent_that_reports_before_its_node_is_listed_is_not_waited_for() -> None:
    world = World()
    world.list(factories.report("ghost"))
    assert world.ready()


def test_a_silent_agent_is_waited_for_from_the_list_on() -> None:
    world = World()
    world.clock.now += 100.0
    world.list(node("a"))
    assert not world.ready()
    world.clock.now += WAIT_S - 0.1
    assert not world.ready()
    world.clock.now += 0.1
    assert world.ready()


def test_a_node_that_goes_is_not_waited_for() -> None:
    world = World()
    world.list(node("a"))
    assert not world.ready()
    cycle.apply_facts(world.scheduler, [NodeGone("a")], 0.0)
    assert world.ready()

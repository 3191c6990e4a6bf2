import threading
from functools import partial

from agent.machine.survey import survey
from agent.node import AgentNode
from tests.fakes import machines
from tests.fakes.nodebox import intent


def test_the_generation_grows_with_what_is_reported_and_with_nothing_else() -> None:
    node = AgentNode("a")
    topology = survey(machines.machine())
    seen = [node.state.generation]
    assert seen == [1]  # the scheduler counts from one
    for change in (
        partial(node.set_topology, topology),
        partial(node.set_topology, survey(machines.machine())),  # equal
        partial(node.set_grants, ()),  # known now: a difference
        partial(node.set_grants, (intent("a", [1]),)),
        partial(node.set_grants, (intent("a", [1]),)),
        partial(node.set_intents, (intent("b", [2]),), 7),
    ):
        change()
        seen.append(node.state.generation)
    assert seen == [1, 2, 2, 3, 4, 4, 4]
    assert node.state.intents_version == 7


def test_waiting_ends_with_the_change_or_with_the_time() -> None:
    node = AgentNode("a")
    timer = threading.Timer(0.05, node.set_intents, ((), 3))
    timer.start()
    assert node.wait(lambda state: state.intents_version == 3, 5).intents_version == 3
    timer.join()
    assert node.wait(lambda state: False, 0.01) is node.state

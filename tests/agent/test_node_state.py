import threading
from contextlib import nullcontext
from functools import partial

import pytest

from agent.allocations import Allocation
from agent.machine.survey import survey
from agent.node import AgentNode
from protos.names import GPU, GPU_SHARE
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


@pytest.mark.parametrize(
    ("held", "reused", "refused"),
    [
        ("listed", False, True),
        ("listed", True, True),  # pod-resources has it: it is not the init container's any more
        ("allocated", False, True),
        ("allocated", True, False),
        ("unlisted", False, True),
        ("other", False, False),
        ("nothing", False, False),
    ],
)
def test_a_device_is_recorded_for_one_container(held: str, reused: bool, refused: bool) -> None:
    node = AgentNode("a")
    node.set_topology(survey(machines.machine()))
    mine = (machines.uuid(0),)
    grants = {"listed": (intent("b", [0]),), "other": (intent("b", [1]),)}.get(held, ())
    node.set_grants(grants, (Allocation(GPU, mine),) if held == "unlisted" else ())
    if held == "allocated":
        node.record_allocation(GPU, mine, 0.0)
    before = node.state
    expected = pytest.raises(ValueError, match="is taken") if refused else nullcontext()
    with expected:
        node.record_allocation(GPU, mine, 1.0, mine if reused else ())
    if refused:
        assert node.state is before
    else:
        assert node.state.allocations == (Allocation(GPU, mine, 1.0),)


def test_a_refused_answer_is_forgotten_by_resource_and_devices() -> None:
    node = AgentNode("a")
    node.set_topology(survey(machines.machine()))
    node.record_allocation(GPU, (machines.uuid(1), machines.uuid(0)), 0.0)
    node.forget_allocation(GPU_SHARE, (machines.uuid(0), machines.uuid(1)))
    node.forget_allocation(GPU, (machines.uuid(0),))
    kept = len(node.state.allocations)
    assert kept == 1
    node.forget_allocation(GPU, (machines.uuid(1), machines.uuid(0)))
    assert node.state.allocations == ()

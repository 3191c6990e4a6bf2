import threading
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest

from agent.allocations import Allocation, Forgotten
from agent.machine import capture
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.node_state import NodeState
from protos import slicing
from protos.names import GPU, GPU_SHARE
from protos.nearest import share_id
from protos.topology import Grant, MemoryOver, NodeTopology, RdmaLimit, RdmaUse
from tests.agent.nvml_fixture import CAPTURES
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


def test_what_was_allocated_before_stays_allocated() -> None:
    node = AgentNode("a")
    node.set_topology(survey(machines.machine()))
    for number in (0, 1, 0):  # the last one for the container after an init container
        mine = (machines.uuid(number),)
        node.record_allocation(GPU, mine, float(number), mine)
    assert {each.device_ids for each in node.state.allocations} == {
        (machines.uuid(0),),
        (machines.uuid(1),),
    }
    assert len(node.state.allocations) == 2


SHARE = share_id(machines.uuid(0), 7)


def test_a_gpu_is_not_allocated_in_another_way() -> None:
    node = AgentNode("a")
    node.set_topology(survey(machines.machine()))
    node.record_allocation(GPU_SHARE, (SHARE,), 0.0)
    assert node.state.taken(GPU) == {}
    assert node.state.taken(GPU_SHARE).keys() == {SHARE}
    with pytest.raises(ValueError, match="is in use in shares"):
        node.record_allocation(GPU, (machines.uuid(0),), 0.0)
    node.record_allocation(GPU, (machines.uuid(1),), 0.0)


def test_who_has_a_device_is_taken_from_the_best_source() -> None:
    mine = (machines.uuid(0),)
    grant = intent("a", [0])
    state = NodeState(
        grants=(grant, replace(grant, resource=GPU_SHARE, device_ids=(SHARE,))),
        allocations=(Allocation(GPU, mine), Allocation(GPU_SHARE, (SHARE,))),
    )
    assert state.taken(GPU) == {mine[0]: "pod team/a"}
    forgotten = Forgotten(GPU, mine, "it runs", grant)
    held = replace(state, forgotten=(forgotten, Forgotten(GPU, ("GPU-x",), "it runs too")))
    assert held.taken(GPU) == {mine[0]: "it runs", "GPU-x": "it runs too"}
    assert held.reported_grants() == (*state.grants, grant)


def test_usage_and_caps_are_kept_and_report_nothing_by_themselves() -> None:
    node = AgentNode("a")
    used = (RdmaUse("team", "a", "mlx5_0", RdmaLimit(1, 2), RdmaLimit(3, 4)),)
    over = (MemoryOver("team", "a", "uid", 0, 5, 4, True),)
    node.set_rdma_use(used)
    node.set_memory_over(over)
    assert (node.state.rdma_use, node.state.memory_over) == (used, over)
    assert node.state.generation == 1


SLICED = survey(capture.load(CAPTURES / "dgx-a100-mig-8.json"))
PART = SLICED.gpus[6].slices[1]
ADDRESS = (SLICED.gpus[6].uuid, PART.gi, PART.ci)


def sliced(*profiles_left: str) -> NodeTopology:
    """GPU 6 without its other slices."""
    kept = tuple(part for part in SLICED.gpus[6].slices if part.profile in profiles_left)
    gpus = (*SLICED.gpus[:6], replace(SLICED.gpus[6], slices=kept), SLICED.gpus[7])
    return replace(SLICED, gpus=gpus)


def test_a_slice_that_is_gone_keeps_its_address_while_a_pod_holds_it() -> None:
    node = AgentNode("a")
    node.set_topology(SLICED)
    assert node.state.orphaned == {}
    held = Grant("team", "a", "c0", slicing.resource(PART.profile), (PART.uuid,))
    node.set_grants((held,))
    assert node.state.orphaned == {}  # it is there
    node.set_topology(sliced("3g.20gb"))
    assert node.state.orphaned[PART.uuid] == ADDRESS
    node.set_grants((held,))
    assert node.state.orphaned == {PART.uuid: ADDRESS}  # of the others nobody holds one
    assert node.state.unplaced((held,)) == set()
    node.set_topology(SLICED)
    assert node.state.orphaned == {}
    node.set_topology(sliced())
    node.set_grants(())
    assert node.state.orphaned == {}


def test_the_address_of_an_unknown_slice_comes_from_the_checkpoint() -> None:
    node = AgentNode("a")
    node.set_topology(sliced())
    held = Grant("team", "a", "c0", slicing.resource(PART.profile), (PART.uuid,))
    assert node.state.unplaced((held, intent("b", [0]))) == {PART.uuid}
    node.set_grants((held,), orphaned={PART.uuid: ADDRESS, "MIG-other": ADDRESS})
    assert node.state.orphaned == {PART.uuid: ADDRESS}
    assert node.state.allocated().sliced == {SLICED.gpus[6].uuid}


def test_every_run_of_an_agent_is_another_one() -> None:
    assert AgentNode("a").boot_id != AgentNode("a").boot_id

"""Rows for what only init containers of a pod have, beside those of pod-resources."""

from dataclasses import replace

import pytest

from agent.allocations import Allocation
from agent.node_state import NodeState
from agent.resources.device_resource import ContainerDevices, with_rests
from protos.gpu_sharing import SHARE
from protos.names import GPU, GPU_SHARE, RDMA, REST_OF_POD
from protos.topology import Grant

LISTED = (
    ContainerDevices("team", "a", "c0", ((GPU, ("g0",)),)),
    ContainerDevices("team", "b", "c0"),
)
PLAN = Grant("team", "a", REST_OF_POD, GPU, ("g1", "g2"), uid="uid-a")
SHARES = replace(PLAN, resource=GPU_SHARE, device_ids=("g1",), limits=((SHARE, 2),))


def rows(
    *plans: Grant, held: tuple[str, ...] = (), resource: str = GPU, uid: str = "uid-a"
) -> tuple[ContainerDevices, ...]:
    unlisted = (Allocation(resource, held, uid=uid),) if held else ()
    grants = (Grant("team", "a", "c0", GPU, ("g0",)),)
    state = NodeState(intents=plans, unlisted=unlisted, grants=grants, grants_known=True)
    found = with_rests(LISTED, resource, state)
    assert found[: len(LISTED)] == LISTED
    return found[len(LISTED) :]


@pytest.mark.parametrize("plan", [PLAN, SHARES], ids=["whole", "shares"])
def test_the_row_has_devices_as_soon_as_there_are_as_many_as_planned(plan: Grant) -> None:
    open_row = ContainerDevices("team", "a", REST_OF_POD)
    for few in ((), ("x1",), ("g0", "x1")):  # g0 is the other container's
        assert rows(plan, held=few, resource=plan.resource) == (open_row,)
    assert rows(plan, held=("x1", "x2"), resource=plan.resource, uid="uid-b") == (open_row,)
    full = replace(open_row, devices=((plan.resource, ("x1", "x2")),))
    assert rows(plan, held=("x1", "x2"), resource=plan.resource) == (full,)
    more = replace(open_row, devices=((plan.resource, ("x1", "x2", "x3")),))
    assert rows(plan, held=("x1", "x2", "x3"), resource=plan.resource) == (more,)


def test_devices_of_another_resource_do_not_count() -> None:
    unlisted = tuple(
        Allocation(resource, ("x1", "x2"), uid="uid-a") for resource in (GPU, GPU_SHARE)
    )
    for one, other in (unlisted, unlisted[::-1]):
        few = replace(one, device_ids=("x3",))
        state = NodeState(intents=(PLAN, SHARES), unlisted=(few, other), grants_known=True)
        assert [row.devices for row in with_rests((LISTED[0],), one.resource, state)][1:] == [()]


@pytest.mark.parametrize(
    ("plan", "resource"),
    [
        (replace(PLAN, container="c0"), GPU),
        (replace(PLAN, pod="unlisted"), GPU),
        (replace(PLAN, namespace="other"), GPU),
        (PLAN, GPU_SHARE),
        (PLAN, RDMA),
    ],
)
def test_other_plans_have_no_row(plan: Grant, resource: str) -> None:
    assert rows(plan, resource=resource) == ()

"""Which NIC shares a container gets, rule by rule, without a kubelet."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.machine.survey import survey
from agent.resources import nic_allocation
from agent.resources.device_resource import ContainerDevices, DeviceRequest
from protos.names import GPU, RDMA
from protos.nearest import device_of, share_id
from protos.topology import Grant
from tests.fakes import machines

TOPOLOGY = survey(machines.machine(cards=8))
NAMES = [f"mlx5_{number}" for number in range(8)]


def shares(*cards: int, count: int = 4) -> tuple[str, ...]:
    return tuple(share_id(NAMES[card], number) for card in cards for number in range(count))


def uuids(*gpus: int) -> tuple[str, ...]:
    return tuple(map(machines.uuid, gpus))


def row(
    pod: str, container: str = "c0", *, gpus: Sequence[int] = (), nics: Sequence[str] = ()
) -> ContainerDevices:
    held = [(GPU, uuids(*gpus))] if gpus else []
    held += [(RDMA, tuple(nics))] if nics else []
    return ContainerDevices("team", pod, container, tuple(held))


def plan(pod: str, *cards: int, container: str = "c0", resource: str = RDMA) -> Grant:
    ids = uuids(*cards) if resource == GPU else tuple(NAMES[card] for card in cards)
    return Grant("team", pod, container, resource, ids)


def chosen(
    size: int,
    rows: Sequence[ContainerDevices] | None,
    *plans: Grant,
    offered: Sequence[str] = shares(*range(8)),
    must: Sequence[str] = (),
    just_given: Sequence[int] = (),
) -> list[int]:
    """The cards of the shares that are chosen, in order."""
    request = DeviceRequest(
        tuple(offered), tuple(must), size, None if rows is None else tuple(rows)
    )
    choice = nic_allocation.preferred(request, TOPOLOGY, plans, just_given=uuids(*just_given))
    assert len(set(choice.device_ids)) == len(choice.device_ids)
    assert set(choice.device_ids) <= {*offered, *must}
    return [NAMES.index(device_of(each)) for each in choice.device_ids]


def test_the_planned_nics_come_first() -> None:
    assert chosen(2, [row("a")], plan("a", 5, 3)) == [5, 3]
    assert chosen(2, [row("a")], plan("a", 5, 5)) == [5, 5]


def test_a_plan_of_another_resource_names_no_nic() -> None:
    assert chosen(1, [row("a")], plan("a", 6, resource=GPU), just_given=()) == chosen(1, [row("a")])


def test_the_nic_beside_the_gpus_that_the_container_holds_or_is_to_get() -> None:
    other = replace(plan("a", 7), device_ids=("mlx5_gone",))
    assert chosen(1, [row("a", gpus=[6])], other) == [6]
    assert chosen(1, [row("a")], other, plan("a", 4, resource=GPU)) == [4]
    assert chosen(1, [row("a", gpus=[6])], other, plan("a", 4, resource=GPU)) == [6]  # it holds 6


def test_a_container_that_has_its_nic_is_not_meant() -> None:
    rows = [row("a", nics=shares(1, count=1)), row("b")]
    assert chosen(1, rows, plan("a", 1), plan("b", 5)) == [5]


def test_an_init_container_may_take_those_of_the_next_container_of_its_pod() -> None:
    rows = [row("a"), row("a", "c1"), row("b", "c1", nics=shares(7, count=1))]
    plans = [plan("a", 5), plan("a", 3, container="c1"), plan("b", 6, container="c1")]
    assert chosen(2, rows, *plans) == [5, 3]
    served = [row("a"), row("a", "c1", nics=shares(3, count=1))]
    assert chosen(1, served, *plans) == [5]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row("a", gpus=[5, 2])], True),  # the only one that holds exactly these
        ([row("a", gpus=[5, 2]), row("b", gpus=[1])], True),
        (None, True),  # nothing else is known
        ([row("a", gpus=[5])], False),
        ([row("a", gpus=[5, 2], nics=shares(0, count=1))], False),  # it has its NICs
        ([row("a", gpus=[5, 2]), row("b", gpus=[5, 2])], False),
    ],
)
def test_the_gpus_of_the_allocate_before(
    rows: Sequence[ContainerDevices] | None, expected: bool
) -> None:
    found = chosen(2, rows, just_given=(2, 5))
    assert (sorted(found) == [2, 5]) == expected


def test_required_shares_are_kept_and_count_for_the_plan() -> None:
    must = shares(5, count=1)
    assert chosen(2, [row("a")], plan("a", 5, 3), must=must) == [5, 3]
    assert chosen(1, [row("a")], plan("a", 5, 3), must=must) == [5]


def test_what_is_not_offered_is_replaced_by_the_nearest() -> None:
    offered = shares(0, 1, 2, 4)
    found = chosen(2, [row("a", gpus=[4, 2])], plan("a", 5, 4), offered=offered)
    assert found[0] == 4
    assert set(found) == {2, 4}


def test_shares_of_a_nic_are_given_in_the_order_of_their_numbers() -> None:
    offered = [share_id("mlx5_0", number) for number in (10, 9, 2)]
    request = DeviceRequest(tuple(offered), (), 2, ())
    choice = nic_allocation.preferred(request, TOPOLOGY, ())
    assert choice.device_ids == (share_id("mlx5_0", 2), share_id("mlx5_0", 9))


def test_fewer_than_asked_for_where_too_few_are_free() -> None:
    assert chosen(3, [row("a")], plan("a", 5), offered=shares(5, count=2)) == [5, 5]

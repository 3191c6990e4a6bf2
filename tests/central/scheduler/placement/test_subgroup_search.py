"""The search for unlike subgroups: which goes first, how far a search that is cut short reaches, when a refusal is
certain, and what it says."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import PodSpec, SubGroups
from central.scheduler.cycle import schedule_once
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement import Bundle, PlacementRequest, SubgroupRequest, explain, fit
from central.scheduler.placement.domain_choice import TRIED_DOMAINS
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, ISLAND, NODE, NUMA, RACK
from tests.central import factories

MANY = 40  # nodes: with so many the pods are not packed at once


def request_of(subgroups: Sequence[SubgroupRequest], required: str = "") -> PlacementRequest:
    counts: dict[PodSpec, int] = {}
    for each in subgroups:
        for spec, count in each.groups:
            counts[spec] = counts.get(spec, 0) + count * each.copies
    rows = sorted({row for each in subgroups for row in each.existing_rows})
    groups: PodCounts = tuple(counts.items())
    return PlacementRequest(groups, required, tuple(rows), subgroups=tuple(subgroups))


def rows_of(snapshot: Snapshot, request: PlacementRequest) -> list[list[int]]:
    """By subgroup, the row of each pod."""
    draft = Draft(snapshot)
    rows = [each.row for each in fit(draft, request) for _ in range(each.pods)]
    draft.undo()
    found = []
    for each in request.subgroups:
        for _ in range(each.copies):
            size = sum(count for _, count in each.groups)
            found.append(rows[:size])
            rows = rows[size:]
    assert not rows
    return found


def refusal(snapshot: Snapshot, request: PlacementRequest) -> str:
    draft = Draft(snapshot)
    with pytest.raises(DoesNotFit) as refused:
        fit(draft, request)
    assert not draft.assignments
    return refused.value.why


def one_for_all(gpus: int = 8) -> Snapshot:
    """Many nodes of 8 GPUs, of which the first by name has the most CPU."""
    snapshot = Snapshot((BLOCK, RACK))
    for number in range(MANY):
        cpu = 64_000 if number == 0 else 8_000
        snapshot.put_node(factories.node(f"n{number:02}", rack="r", gpus=gpus, cpu=cpu))
    return snapshot


def fillers(gpus: int, required: str = NODE) -> list[SubgroupRequest]:
    """Unlike subgroups, one for each of the other nodes. Each would take the first node by its name."""
    return [
        SubgroupRequest(((factories.spec(gpus, 1000 + number), 1),), required)
        for number in range(MANY - 1)
    ]


# --- the hardest first --------------------------------------------------------------


def test_the_subgroup_with_the_most_gpus_goes_first() -> None:
    large = SubgroupRequest(((factories.spec(8, 32_000), 1),), NODE)
    for subgroups in ([large, *fillers(7)], [*fillers(7), large]):
        rows = rows_of(one_for_all(), request_of(subgroups))
        assert rows[subgroups.index(large)] == [0]
        assert sorted(row for rows in rows for row in rows) == list(range(MANY))


def test_parts_of_gpus_count_by_their_share() -> None:
    """200 hundredths in two pods are more than one GPU, and less than three."""
    snapshot = Snapshot((BLOCK, RACK))
    for number in range(MANY):
        cpu = 64_000 if number == 0 else 8_000
        name = f"n{number:02}"
        row = snapshot.put_node(factories.node(name, rack="r", gpus=4, cpu=cpu, shares=True))
        shape = factories.topology(4, ((0, 1, 2, 3),), shares=True).shape()
        snapshot.put_gpus(row, shape, 0b1111, (0b1111, 0, 0, 0), {})
    part = factories.part("p", 100, cpu=16_000).spec
    large = SubgroupRequest(((part, 2), (factories.spec(1, 1_000), 1)), NODE)
    rows = rows_of(snapshot, request_of([*fillers(2), large]))
    assert rows[-1] == [0, 0, 0]


def test_the_subgroup_of_the_narrowest_level_goes_first() -> None:
    """The others may spread over a rack, but would be on one node."""
    close = SubgroupRequest(((factories.spec(4, 16_000), 2),), NODE)
    rows = rows_of(one_for_all(), request_of([*fillers(8, RACK), close]))
    assert rows[-1] == [0, 0]


def test_a_subgroup_that_joins_its_members_goes_first() -> None:
    rest = SubgroupRequest(((factories.spec(1, 16_000), 1),), NODE, (0,))
    rows = rows_of(one_for_all(), request_of([*fillers(8), rest]))
    assert rows[-1] == [0]


def test_a_bundle_goes_where_all_of_its_subgroups_fit() -> None:
    """It is as hard as all its pods: its two subgroups need the only rack of two nodes, which the larger
    one of a single subgroup would take."""
    snapshot = Snapshot((BLOCK, RACK))
    for number in range(MANY):
        rack = "r00" if number < 2 else f"r{number:02}"
        snapshot.put_node(factories.node(f"n{number:02}", rack=rack, gpus=8))
    inside = (Bundle(0, RACK),)
    pair = [SubgroupRequest(((factories.spec(5, cpu), 1),), NODE, bundles=inside) for cpu in (1, 2)]
    alone = [
        SubgroupRequest(((factories.spec(6, 100 + n), 1),), NODE, bundles=(Bundle(1 + n, RACK),))
        for n in range(MANY - 2)
    ]
    rows = rows_of(snapshot, request_of([alone[0], pair[0], *alone[1:], pair[1]]))
    assert sorted(rows[1] + rows[-1]) == [0, 1]


# --- bundles of all subgroups ---------------------------------------------------------


def racks(*nodes: str) -> Snapshot:
    """Nodes of 4 GPUs by rack."""
    snapshot = Snapshot((BLOCK, RACK))
    for number, rack in enumerate(nodes):
        snapshot.put_node(factories.node(f"n{number}", block=rack[0], rack=rack, gpus=4))
    return snapshot


def unlike(*gpus: int, **other: object) -> list[SubgroupRequest]:
    return [SubgroupRequest(((factories.spec(each), 1),), NODE, **other) for each in gpus]  # type: ignore[arg-type]  # a test's shorthand


def test_a_bundle_of_all_subgroups_constrains_the_gang() -> None:
    """The rack that takes them is not the first one. What the gang itself requires stays."""
    snapshot = racks("aa", "ab", "bb", "bb")
    rack, block = (Bundle(0, RACK),), (Bundle(0, BLOCK),)
    assert rows_of(snapshot, request_of(unlike(3, 4, bundles=rack))) == [[3], [2]]
    assert rows_of(snapshot, request_of(unlike(3, 4, bundles=rack), BLOCK)) == [[3], [2]]
    assert rows_of(snapshot, request_of(unlike(3, 4, bundles=block), RACK)) == [[3], [2]]
    assert refusal(racks("aa", "ab"), request_of(unlike(3, 4, bundles=block), RACK))
    assert rows_of(racks("aa", "ab"), request_of(unlike(3, 4, bundles=block)))


def test_members_outside_of_a_bundle_do_not_bind_it() -> None:
    """Those that run are in a full rack. The bundle of the pending subgroups has another one."""
    snapshot = racks("aa", "ab", "ab")
    snapshot.take(0, factories.spec(4), 1, 0)
    request = request_of(unlike(3, 4, bundles=(Bundle(0, RACK),)))
    rows = rows_of(snapshot, replace(request, existing_rows=(0,)))
    assert sorted(rows) == [[1], [2]]


# --- parts of nodes -------------------------------------------------------------------


def two_islands(*free: int) -> Snapshot:
    """Nodes with two islands of 4 GPUs; free: masks."""
    snapshot = Snapshot((RACK,))
    for number, mask in enumerate(free):
        row = snapshot.put_node(factories.node(f"n{number:02}", cpu=20_000))
        shape = factories.topology(8, ((0, 1, 2, 3), (4, 5, 6, 7))).shape()
        snapshot.put_gpus(row, replace(shape, numa=(0, 0, 0, 0, 1, 1, 1, 1)), mask)
        snapshot.take(row, factories.spec(8 - mask.bit_count()), 1, 0)
    return snapshot


@pytest.mark.parametrize("level", [ISLAND, NUMA])
def test_unlike_subgroups_of_a_gang_share_one_part_of_a_node(level: str) -> None:
    """Each island has GPUs for one of them; on the node there are enough for both."""
    subgroups = [SubgroupRequest(((factories.spec(gpus), 1),)) for gpus in (3, 2)]
    assert refusal(two_islands(0b11111111), request_of(subgroups, level))
    subgroups = [SubgroupRequest(((factories.spec(gpus), 1),)) for gpus in (2, 1)]
    draft = Draft(two_islands(0b11111111, 0b01110011))
    used = 0
    for each in fit(draft, request_of(subgroups, level)):
        assert each.row == 1
        used |= each.gpus
    assert used == 0b01110000


def test_a_subgroup_without_gpus_is_on_the_node_of_its_gangs_part() -> None:
    for level in (ISLAND, NUMA):
        for required in ("", NODE, ISLAND, RACK):
            subgroups = [*unlike(2, 1), SubgroupRequest(((factories.spec(0), 2),), required)]
            assert len(rows_of(two_islands(0b111), request_of(subgroups, level))) == 3


@pytest.mark.parametrize("subgroups", [(), (SubGroups("s", 1, required=ISLAND),)])
def test_a_gang_without_gpus_that_requires_a_part_of_a_node_is_on_one_node(
    subgroups: tuple[SubGroups, ...],
) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    nodes = [factories.node(name, cpu=cpu) for name, cpu in (("a", 1500), ("b", 3000))]
    gang = factories.gang("g", 3, topology_required=ISLAND, subgroups=subgroups)
    pods = [factories.pod(f"g-{rank}", 0, "g", cpu=1000) for rank in range(3)]
    decisions = schedule_once(scheduler, [*nodes, gang, *pods], 0.0)
    assert [each.node for each in decisions if isinstance(each, Bind)] == ["b", "b", "b"]


# --- reasons --------------------------------------------------------------------------


@pytest.mark.parametrize("count", [TRIED_DOMAINS - 1, TRIED_DOMAINS + 4])
def test_a_refusal_is_certain_however_many_domains_there_are(count: int) -> None:
    """Each rack has GPUs for both, and a node for each alone."""
    subgroups = [SubgroupRequest(((factories.spec(2), 2),), NODE), *unlike(3)]
    request = request_of(subgroups, RACK)
    needs = "needs 2 pods x 2 GPUs and 1 pod x 3 GPUs in 2 subgroups in one rack"
    snapshot = Snapshot((BLOCK, RACK))
    for number in range(count):
        for gpus in (5, 2):
            name = f"n{number:02}{gpus}"
            snapshot.put_node(factories.node(name, rack=f"r{number:02}", gpus=gpus))
    why = "each subgroup fits on its own, but not all together"
    assert refusal(snapshot, request) == f"{needs}; {why}"


def test_no_rack_is_tried_whose_sums_do_not_suffice() -> None:
    """Many racks have a node for each subgroup, one after the other. The only one with two is the last."""
    request = request_of(unlike(3, 2), RACK)
    many = [f"r{number:02}" for number in range(TRIED_DOMAINS + 4)]
    assert refusal(racks(*many), request).endswith(explain.NOT_TOGETHER)
    rows = rows_of(racks(*many, "z", "z"), request)
    assert sorted(row for each in rows for row in each) == [len(many), len(many) + 1]

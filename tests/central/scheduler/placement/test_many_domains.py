"""Unlike pods find the one domain that takes them, however many others take each kind of pod by itself."""

from collections.abc import Sequence

import pytest

from central.model.facts import PodSpec
from central.scheduler.placement import PlacementRequest, explain, fit
from central.scheduler.placement.domain_choice import TRIED_DOMAINS
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, GPU, ISLAND, NODE, NUMA, RACK
from tests.central import factories

OTHERS = TRIED_DOMAINS + 4


def names(snapshot: Snapshot, request: PlacementRequest) -> set[str]:
    draft = Draft(snapshot)
    found = {snapshot.columns.names[each.row] for each in fit(draft, request)}
    draft.undo()
    return found


def pods(*gpus: int, cpu: int = 100) -> PlacementRequest:
    return PlacementRequest(tuple((factories.spec(each, cpu), 1) for each in gpus))


def cluster(racks: Sequence[tuple[str, int, int]]) -> Snapshot:
    """Nodes: rack, GPUs, CPU."""
    snapshot = Snapshot((BLOCK, RACK))
    for number, (rack, gpus, cpu) in enumerate(racks):
        name = f"{rack}-{number:02}"
        snapshot.put_node(factories.node(name, rack=rack, block=rack[0], gpus=gpus, cpu=cpu))
    return snapshot


@pytest.mark.parametrize("level", [NODE, ISLAND, NUMA])
def test_the_one_node_with_enough_for_all_together(level: str) -> None:
    """It is neither the fullest nor the first by name. Once the GPUs are short elsewhere, once the CPU."""
    for others, one, request in (
        ((4, 9000), (8, 9000), pods(3, 2)),
        ((8, 1000), (8, 9000), pods(3, 2, cpu=900)),
    ):
        snapshot = cluster([*(("a", *others) for _ in range(OTHERS)), ("z", *one)])
        for row in range(OTHERS + 1):
            gpus = int(snapshot.columns.allocatable[row, 0])
            snapshot.put_gpus(row, factories.topology(gpus).shape(), (1 << gpus) - 1)
        wanted = PlacementRequest(request.groups, level)
        assert names(snapshot, wanted) == {f"z-{OTHERS}"}
        snapshot.take(OTHERS, factories.spec(4, 8500), 1, 0b1111)
        with pytest.raises(DoesNotFit) as refusal:
            fit(Draft(snapshot), wanted)
        assert explain.SEARCH_LIMIT not in refusal.value.why


@pytest.mark.parametrize("level", [RACK, BLOCK])
def test_the_one_rack_or_block_with_enough_for_all_together(level: str) -> None:
    """Nodes without labels are in none, whatever is free there."""
    single = [(f"{chr(65 + number)}a", 4, 9000) for number in range(OTHERS)]
    two = [("za", 4, 9000), ("za", 4, 9000)]
    wanted = PlacementRequest(pods(3, 2).groups, level)
    assert {name[:2] for name in names(cluster([*single, *two]), wanted)} == {"za"}
    snapshot = cluster(single)
    for number in range(3):
        snapshot.put_node(factories.node(f"none-{number}", gpus=4))
    with pytest.raises(DoesNotFit) as refusal:
        fit(Draft(snapshot), wanted)
    assert explain.NOT_TOGETHER in refusal.value.why


def test_an_overcommitted_node_takes_nothing_from_its_rack() -> None:
    """Its pods request more CPU than it has. A pod without CPU may still use its GPUs."""
    snapshot = cluster([("aa", 4, 9000), ("aa", 4, 9000)])
    snapshot.take(0, factories.spec(0, 12_000), 1, 0)
    assert (snapshot.columns.free[0] < 0).any()
    bare = PodSpec(((GPU, 4), ("pods", 1)), gpu_containers=(("main", 4),))
    groups = ((factories.spec(4, 8000), 1), (bare, 1))
    assert names(snapshot, PlacementRequest(groups, RACK)) == {"aa-00", "aa-01"}
    assert names(snapshot, PlacementRequest(groups)) == {"aa-00", "aa-01"}

"""Racks that are one NVLink fabric: what the GPUs themselves tell is a level like any other."""

from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.names import CHASSIS, CLIQUE, RACK
from protos.topology import NodeTopology
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants


def tray(clique: str, chassis: str = "c") -> NodeTopology:
    plain = factories.topology(4)
    gpus = tuple(replace(gpu, clique=clique, chassis=chassis) for gpu in plain.gpus)
    return replace(plain, gpus=gpus)


def rack(levels: tuple[str, ...], cliques: dict[str, str]) -> Scheduler:
    made = new_scheduler(levels)
    facts: list[Fact] = []
    for name, clique in cliques.items():
        facts += [factories.node(name, rack="r1", gpus=4), factories.report(name, tray(clique))]
    schedule_once(made, facts, 0.0)
    return made


def placed(made: Scheduler, pods: int, level: str) -> list[str]:
    facts: list[Fact] = [factories.gang("g", pods, topology_required=level)]
    facts += [factories.pod(f"g-{number}", 4, "g") for number in range(pods)]
    return sorted(each.node for each in schedule_once(made, facts, 1.0) if isinstance(each, Bind))


def test_a_gang_stays_in_one_clique() -> None:
    """Two partitions of one rack: a rack is not enough."""
    cliques = {f"n{number}": f"fabric.{number % 2}" for number in range(6)}
    made = rack((RACK, CLIQUE), cliques)
    nodes = placed(made, 3, CLIQUE)
    assert len(nodes) == 3
    assert len({cliques[name] for name in nodes}) == 1
    check_invariants(made)


def test_the_closest_domain_is_the_clique_without_being_asked() -> None:
    cliques = {"n0": "f.0", "n1": "f.1", "n2": "f.0", "n3": "f.1"}
    made = rack((RACK, CLIQUE), cliques)
    assert len({cliques[name] for name in placed(made, 2, "")}) == 1


def test_what_no_clique_holds_waits() -> None:
    made = rack((RACK, CLIQUE), {f"n{number}": f"f.{number % 2}" for number in range(4)})
    assert placed(made, 3, CLIQUE) == []
    assert "in one clique" in made.state.gang_of(made.state.pods["uid-g-0"]).attempt.reason  # type: ignore[union-attr]  # it has one
    moved: list[Fact] = [factories.report("n1", tray("f.0"), 2)]
    assert len([each for each in schedule_once(made, moved, 2.0) if isinstance(each, Bind)]) == 3
    check_invariants(made)


def test_a_machine_of_two_cliques_is_in_none_and_a_label_goes_before() -> None:
    made = rack((CHASSIS, CLIQUE), {"n0": "f.0"})
    mixed = tray("f.0")
    mixed = replace(mixed, gpus=(*mixed.gpus[:3], replace(mixed.gpus[3], clique="f.1")))
    schedule_once(made, [factories.report("n0", mixed, 2)], 1.0)
    assert made.state.nodes["n0"].reported.levels == ((CHASSIS, "c"),)
    labelled = factories.node("n0", rack="r1", gpus=4)
    schedule_once(made, [replace(labelled, labels={**labelled.labels, CHASSIS: "ours"})], 2.0)
    row = made.state.nodes["n0"].merged()
    assert row is not None
    assert row.levels()[CHASSIS] == "ours"
    check_invariants(made)

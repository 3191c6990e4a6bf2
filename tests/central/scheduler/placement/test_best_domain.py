"""The rack that a refusal names: the one that takes the most, of equal ones the first by name, and none without
nodes."""

from central.controllers.composite import new_scheduler
from central.model.facts import NodeGone
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.small_cluster import job


def reason(made: Scheduler) -> str:
    return made.state.gangs["ns", "g", True].attempt.reason


def test_the_best_rack_is_the_first_by_name_that_has_nodes() -> None:
    made = new_scheduler(factories.LEVELS)
    nodes = [factories.node(f"n{rack}", rack=rack) for rack in ("r3", "r1", "r2")]
    asked = job("g", 2, 8, topology_required=RACK)
    schedule_once(made, [*nodes, *asked], 1.0)
    assert "best candidate r1 fits 1 of 2" in reason(made)
    schedule_once(made, [NodeGone("nr1")], 2.0)
    assert "best candidate r2 fits 1 of 2" in reason(made)
    for name in ("nr2", "nr3"):
        schedule_once(made, [NodeGone(name)], 3.0)
    schedule_once(made, [factories.node("alone")], 4.0)
    assert f"no node has label {RACK}, so there is no rack" in reason(made)

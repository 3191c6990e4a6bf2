"""What `lockstep explain` says of objects that other controllers own: size, range, who changed it, what keeps it
there."""

from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.server.queries import explain
from central.simulator import scenario
from central.simulator.documents import SourceLocation
from central.simulator.simulation import Simulation
from tests.central.controllers.test_elastic_objects import ALL, WORDS, sized
from tests.central.scheduler.elastic.test_autoscaler import machine, rigid

Json = dict[str, Any]
KINDS = [word.lower().removeprefix("indexed") for word in WORDS]


def explained(until_s: float, name: str, *documents: Json) -> str:
    """The size in the explanation of the gang, at this time of a simulation."""
    placed = [(SourceLocation("explained", index), raw) for index, raw in enumerate(documents)]
    scheduler = new_scheduler()
    Simulation(scenario.read(placed, ("lockstep",), ()), scheduler, until_s=until_s).run()
    found = explain(scheduler, "default", name)
    assert found is not None
    return found.size


@pytest.mark.parametrize(("make", "kind"), list(zip(ALL, KINDS, strict=True)), ids=WORDS)
def test_each_kind_says_who_shrank_it_and_what_keeps_it_there(make: Any, kind: str) -> None:
    said = explained(200, f"{kind}/e", machine(0), make("e", 2, 8, 8), rigid("r", 5, 100))
    assert said == (
        "3 of 2 to 8 members; last change: room for job r; 0 seats free for more; "
        "its share is 1 of the 1 seats above the least sizes"
    )


def test_the_most_is_said() -> None:
    said = explained(50, "deployment/e", machine(0), sized("Deployment", "e", 2, 6, 2))
    assert said.endswith(
        "6 of 2 to 6 members; last change: there is room for more; this is the most that it can use"
    )


def test_one_whose_size_is_left_alone_says_so() -> None:
    changes = [sized("Deployment", "e", 2, 4, 6) for _ in range(4)]
    for at_s, each in zip((0, 50, 60, 70), changes, strict=True):
        each["metadata"]["annotations"]["lockstep.dev/arrives-at"] = f"{at_s}s"
    said = explained(300, "deployment/e", machine(0, 16), *changes)
    assert "another client changes spec.replicas, too" in said

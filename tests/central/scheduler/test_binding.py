"""Each pod of a gang of unlike pods gets the node that was found for its class."""

from dataclasses import replace
from itertools import permutations

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.invariants import check_invariants
from tests.central import factories

HOMES = ("a", "b", "a", "c")  # the node that each member must have, by a label


def member(index: int, home: str, order: int) -> PodSeen:
    pod = factories.pod(f"p{index}", 1, gang="g", created=float(order))
    return replace(pod, spec=replace(pod.spec, node_selector=(("home", home),)))


@pytest.mark.parametrize("order", sorted(set(permutations(range(len(HOMES))))))
def test_unlike_members_in_any_order(order: tuple[int, ...]) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    nodes = [factories.node(name, labels={"home": name}) for name in sorted(set(HOMES))]
    pods = [member(i, HOMES[i], rank) for rank, i in enumerate(order)]
    decisions = schedule_once(scheduler, [*nodes, factories.gang("g", 4), *pods], 0.0)
    check_invariants(scheduler)
    assert {each.name: each.node for each in decisions if isinstance(each, Bind)} == {
        f"p{i}": home for i, home in enumerate(HOMES)
    }

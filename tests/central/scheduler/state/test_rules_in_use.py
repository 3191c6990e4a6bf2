"""The rules between pods that are in use are those of the pods there are."""

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import PodGone
from central.model.pod_rules import Expression, Near, Peers, Rules, Selector
from central.scheduler.cycle import schedule_once
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants


@pytest.mark.parametrize("values", [("web",), ()])
def test_a_rule_goes_with_its_last_pod(values: tuple[str, ...]) -> None:
    """Also one that no pod can match, which a proxy before the API server may send."""
    scheduler = new_scheduler(factories.LEVELS)
    peers = Peers((Selector(("ns",), (Expression("app", "In", values),)),), True)
    pods = [factories.pod(name, rules=Rules(near=Near(peers, ("zone",)))) for name in ("a", "b")]
    schedule_once(scheduler, pods, 1.0)
    in_use = scheduler.state.snapshot.pod_counts.ids
    assert list(in_use) == [peers]
    schedule_once(scheduler, [PodGone("uid-a")], 2.0)
    assert list(in_use) == [peers]
    schedule_once(scheduler, [PodGone("uid-b")], 3.0)
    assert not in_use
    check_invariants(scheduler)

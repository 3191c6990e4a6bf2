"""Every life x every event, against a table written down apart from the code."""

from itertools import product

import pytest

from central.scheduler.inventory import pods
from central.scheduler.inventory.pods import Life, transition
from tests.central import factories

STAGES = (pods.WAITING, pods.REFUSED, pods.ASSUMED, pods.BOUND)
LEAVING = (pods.STAYS, pods.ASKED, pods.AGREED)
EVENTS = (
    pods.PLACED,
    pods.BIND_FAILED,
    pods.SEEN_BOUND,
    pods.OBSERVED,
    pods.DEVICES_UNKNOWN,
    pods.EVICTED,
    pods.EVICTION_AGREED,
    pods.EVICTION_ENDED,
)
LEGAL = [
    Life(stage, observed, leaving, "no" if stage == pods.REFUSED else "")
    for stage, observed, leaving in product(STAGES, (False, True), LEAVING)
    if not observed or stage in (pods.ASSUMED, pods.BOUND)
]

# The stage after an event; where a stage is missing, it stays.
STAGE_AFTER = {
    pods.PLACED: {pods.WAITING: pods.ASSUMED, pods.REFUSED: pods.ASSUMED},
    pods.BIND_FAILED: {pods.ASSUMED: pods.WAITING},
    pods.SEEN_BOUND: dict.fromkeys(STAGES, pods.BOUND),
}
LEAVING_AFTER = {
    pods.EVICTED: dict.fromkeys(LEAVING, pods.ASKED),
    pods.EVICTION_AGREED: {pods.ASKED: pods.AGREED},
    pods.EVICTION_ENDED: dict.fromkeys(LEAVING, pods.STAYS),
}


@pytest.mark.parametrize("event", EVENTS)
def test_each_life_after_each_event(event: str) -> None:
    for life in LEGAL:
        after = transition(life, event)
        assert after in LEGAL, f"{life} {event} -> {after}"
        assert after.stage == STAGE_AFTER.get(event, {}).get(life.stage, life.stage)
        assert after.leaving == LEAVING_AFTER.get(event, {}).get(life.leaving, life.leaving)


@pytest.mark.parametrize("life", LEGAL)
def test_devices_are_observed_only_on_a_node(life: Life) -> None:
    placed = life.stage in (pods.ASSUMED, pods.BOUND)
    assert transition(life, pods.OBSERVED).observed == placed
    assert not transition(life, pods.DEVICES_UNKNOWN).observed
    assert transition(life, pods.SEEN_BOUND).observed == life.observed


def test_a_final_bind_error_is_kept_until_the_pod_is_bound() -> None:
    assumed = transition(pods.NEW, pods.PLACED)
    refused = transition(assumed, pods.BIND_FAILED, "no such node")
    assert refused == Life(pods.REFUSED, why="no such node")
    assert transition(refused, pods.BIND_FAILED, "late") == refused
    assert transition(refused, pods.SEEN_BOUND) == Life(pods.BOUND)


def test_an_answer_to_an_eviction_that_was_called_off_changes_nothing() -> None:
    asked = transition(Life(pods.BOUND), pods.EVICTED)
    called_off = transition(asked, pods.EVICTION_ENDED)
    assert transition(called_off, pods.EVICTION_AGREED) == Life(pods.BOUND)


@pytest.mark.parametrize(
    ("now", "ends"),
    [
        *((99.0, 100.0), (100.0, 100.0), (101.0, 160.0), (160.0, 160.0), (161.0, 220.0)),
        *((220.0, 220.0), (221.0, 340.0), (341.0, 580.0)),
    ],
)
def test_a_late_pod_is_expected_to_end_one_minute_late_then_two_then_four(
    now: float, ends: float
) -> None:
    seen = factories.pod("p", runs_for_s=90.0, started=10.0)
    assert pods.Pod(seen, seen.spec).ends(now) == ends


def test_all_pods_of_an_eviction_leave_or_none_does() -> None:
    """Whatever raises on the way: half an eviction would be undone by nobody."""
    good, bad = (pods.Pod(seen := factories.pod(name, 1), seen.spec) for name in ("a", "b"))
    bad.life = Life(why=["no text"])  # type: ignore[arg-type]  # a bug's
    with pytest.raises(TypeError):
        pods.start_leaving([good, bad])
    assert [pod.evicting for pod in (good, bad)] == [False, False]
    bad.life = pods.NEW
    pods.start_leaving([good, bad])
    assert [pod.evicting for pod in (good, bad)] == [True, True]

"""Stories of random facts: no invariant breaks, whatever arrives in whatever order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision
from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.effort import examples
from tests.simulation.fact_strategies import FACTS
from tests.simulation.placement_oracle import assert_sound, assert_within_budgets
from tests.simulation.reason_checker import assert_reasons_true
from tests.simulation.share_strategies import OF_SHARES
from tests.simulation.volume_strategies import OF_VOLUMES

Story = list[list[Fact]]


def assert_story_is_safe(story: Story) -> None:
    """Facts arrive every 20 seconds."""
    cluster = new_scheduler(factories.LEVELS)
    for now, facts in enumerate(story):
        decisions = schedule_once(cluster, facts, now * 20.0)
        check_invariants(cluster)
        assert_sound(cluster, decisions)
        assert_within_queues(cluster, decisions)
        assert_within_budgets(cluster, decisions)
        assert_reasons_true(cluster)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.lists(FACTS, max_size=6), max_size=8))
def test_no_story_breaks_an_invariant(story: Story) -> None:
    assert_story_is_safe(story)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.lists(OF_SHARES, max_size=6), max_size=8))
def test_no_story_of_shares_breaks_an_invariant(story: Story) -> None:
    """Whole GPUs and shares on three small machines: what is rare among all facts is common here."""
    assert_story_is_safe(story)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.lists(OF_VOLUMES, max_size=6), max_size=10))
def test_no_story_of_volumes_breaks_an_invariant(story: Story) -> None:
    """Volumes that exist, and claims that ask for them."""
    assert_story_is_safe(story)


def assert_within_queues(cluster: Scheduler, decisions: list[Decision]) -> None:
    for decision in decisions:
        if isinstance(decision, Bind):
            gang = cluster.state.gang_of(cluster.state.pods[decision.pod])
            assert gang is not None
            assert_within_queue(cluster, gang)


def assert_within_queue(cluster: Scheduler, gang: Gang) -> None:
    """No gang is bound for an unusable queue, or above the capability of the queue or of one above it."""
    if cluster.queues.enabled:
        assert gang.account is not None
        queue = cluster.queues.by_name[gang.account.queue]
        assert not queue.error, queue.error
        for above in queue.path:
            for resource, most in above.seen.capability:
                if gang.account.used.get(resource):
                    assert above.used[resource] <= most, f"queue {above.name} is over {resource}"


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(FACTS, max_size=12), st.integers(0, 3))
def test_the_same_story_twice_changes_nothing(story: list[Fact], at: int) -> None:
    """A watch that breaks lists everything again."""
    once, twice = new_scheduler(factories.LEVELS), new_scheduler(factories.LEVELS)
    first = [schedule_once(once, [fact], 0.0) for fact in story]
    second = [
        schedule_once(twice, [fact] * (2 if i % 4 == at else 1), 0.0)
        for i, fact in enumerate(story)
    ]
    assert first == second

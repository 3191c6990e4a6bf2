"""Stories of controllers and their pods, in any order and twice: no promise breaks, and whatever the
order was, the pods end up in the same gangs."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, OwnerGone, OwnerSeen, PodGone, PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.state.owner_gangs import HOLD_S
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.effort import examples

OWNERS = st.sampled_from(["", "a", "a", "b"])
PODS = st.builds(
    lambda name, owner, kind, least, node: replace(
        factories.pod(name, 1),
        owner=owner,
        owner_name=f"{kind}/{owner}" if owner else "",
        gang_min=least if owner else None,
        node=node,
        phase="Running" if node else "Pending",
    ),
    st.sampled_from(["p-0", "p-1"]),
    OWNERS,
    st.sampled_from(["replicaset", "replicaset", "rayjob"]),
    st.sampled_from([None, None, 2]),
    st.sampled_from(["", "", "n"]),
)
WORDS = st.builds(
    lambda uid, above, least, queue, error: OwnerSeen(
        uid, f"replicaset/{uid}", above, least, queue, error=error
    ),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["", "deployment/d"]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from(["", "q"]),
    st.sampled_from(["", "", "annotation: 0"]),
)
FACTS = st.one_of(
    PODS,
    PODS,
    WORDS,
    st.builds(OwnerGone, st.sampled_from(["a", "b"])),
    st.builds(PodGone, st.sampled_from(["uid-p-0", "uid-p-1"])),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.lists(FACTS, max_size=4), st.sampled_from([0.1, 2.0])), max_size=8))
def test_no_story_breaks_a_promise(story: list[tuple[list[Fact], float]]) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [factories.node("n", rack="r1", gpus=2)], 0.0)
    now = 0.0
    for facts, later in story:
        now += later
        schedule_once(scheduler, facts, now)
        check_invariants(scheduler)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.dictionaries(st.sampled_from(["p-0", "p-1"]), PODS, min_size=1),
    st.lists(WORDS, max_size=3, unique_by=lambda said: said.uid),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_news_does_not_matter(
    pods: dict[str, PodSeen], words: list[OwnerSeen], random: object
) -> None:
    facts: list[Fact] = [*({pod.uid: pod for pod in pods.values()}).values(), *words]
    kept = None
    for _ in range(3):
        random.shuffle(facts)  # type: ignore[attr-defined]  # Hypothesis' own
        scheduler = new_scheduler(factories.LEVELS)
        for fact in facts:
            schedule_once(scheduler, [fact], 0.0)
            check_invariants(scheduler)
        schedule_once(scheduler, [], HOLD_S)
        gangs = {key: sorted(gang.members) for key, gang in scheduler.state.gangs.items()}
        kept = kept or gangs
        assert gangs == kept

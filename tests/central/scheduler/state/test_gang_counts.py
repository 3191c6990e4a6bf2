"""The members of a gang, counted by hand."""

from dataclasses import replace

from central.model.facts import PodSeen
from central.scheduler.inventory.pods import BIND_FAILED, PLACED, SEEN_BOUND, Pod
from central.scheduler.state.gang_counts import GangCounts
from tests.central import factories


def member(number: int, node: str = "", **fields: object) -> Pod:
    """A pod that is bound to the node, or waits."""
    seen = replace(factories.pod(f"p-{number}"), **fields)  # type: ignore[arg-type]  # a test's shorthand
    pod = Pod(seen, seen.spec)
    if node:
        pod.node = node
        pod.advance(SEEN_BOUND)
    return pod


def names(pods: list[Pod]) -> list[str]:
    return [pod.seen.name for pod in pods]


def test_each_member_counts_once() -> None:
    assumed, refused = member(4), member(6)
    assumed.node = "a"
    assumed.advance(PLACED)
    refused.advance(PLACED)
    refused.advance(BIND_FAILED, "the API server says no")
    counts = GangCounts.of(
        [
            member(3),
            member(1),
            member(2, gated=True),
            assumed,
            member(5, "a", phase="Running"),
            refused,
            member(7, "a", phase="Succeeded"),
            member(8, phase="Failed"),
            member(9, "a", phase="Running", deleting=True),
            member(10, deleting=True),
        ]
    )
    assert names(counts.waiting) == ["p-1", "p-2", "p-3"]
    assert names(counts.placed) == ["p-4", "p-5", "p-7"]
    assert (counts.assumed, counts.gated, counts.unplaced) == (1, 1, 4)
    assert counts.blocked == "the API server says no"
    assert (counts.running, counts.succeeded, counts.failed) == (2, 1, 1)


def test_the_settings_of_members_are_joined() -> None:
    first: dict[str, object] = {
        "priority": 3,
        "created": 9.0,
        "gang_min": None,
        "topology_required": "rack",
        "required_tier": 2,
        "queue": "a",
        "preemptable": True,
        "cooldown_s": 5.0,
    }
    second: dict[str, object] = {
        "priority": 1,
        "created": 4.0,
        "gang_min": 2,
        "topology_preferred": "block",
        "placement": "pack",
        "required_tier": 1,
        "queue": "b",
        "preemptable": False,
        "cooldown_s": 2.0,
    }
    counts = GangCounts.of([member(0, **first), member(1, **second)])  # type: ignore[arg-type]
    assert (counts.priority, counts.created, counts.label_min) == (3, 4.0, 2)
    assert (counts.required, counts.preferred, counts.placement) == ("rack", "block", "pack")
    assert (counts.tier, counts.queue, counts.cooldown_s) == (1, "b", 5.0)
    assert counts.never_evicted
    assert not GangCounts.of([member(0, **first), member(1)]).never_evicted  # type: ignore[arg-type]
    assert GangCounts.of([member(0)]).tier is None
    assert GangCounts.of([]) == GangCounts()


def test_pods_that_are_placed_wait_no_more() -> None:
    """Some of them, and then all the others."""
    pods = [member(number, task=task) for number, task in enumerate(("ps", "worker", "worker"))]
    counts = GangCounts.of([*pods, member(9, "a", task="ps")])
    assert counts.tasks == {"ps": 2, "worker": 2}
    counts.assign([pods[1]])
    assert (names(counts.waiting), names(counts.placed)) == (["p-0", "p-2"], ["p-9", "p-1"])
    assert (counts.assumed, counts.unplaced) == (1, 2)
    counts.assign([pods[2], pods[0]])
    assert (names(counts.waiting), names(counts.placed)) == ([], ["p-9", "p-1", "p-2", "p-0"])
    assert (counts.assumed, counts.unplaced) == (3, 0)


def test_a_pod_of_one_gang_says_nothing_of_another() -> None:
    """Counts are of what is passed."""
    one: PodSeen = factories.pod("p-1")
    assert GangCounts.of([Pod(one, one.spec)]).unplaced == 1

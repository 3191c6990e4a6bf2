"""The phase and the sentence of a gang, against the rules as they are written, and that each is published once."""

import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import UpdateGangStatus
from central.model.facts import Fact, PodGone
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from central.scheduler.status import gang_status
from tests.central import factories
from tests.effort import ALL_SEEDS, seeds

HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))
RACKS = {"n0": "r0", "n1": "r0", "n2": "r1", "n3": "r2", "n4": "r2", "n5": ""}
BLOCKS = {"n0": "b0", "n1": "b0", "n2": "b0", "n3": "b1", "n4": "b1", "n5": ""}


@dataclass
class Member:
    node: str  # empty: none
    phase: str
    gpus: frozenset[int] = frozenset()  # on n0, which has a report
    deleting: bool = False


def drawn(dice: random.Random) -> list[Member]:
    """Often on few nodes, so that they have a domain in common, or all on the node with a report."""
    where = dice.choice((["n0"], ["n0", "n1"], ["n0", "n2"], ["n3", "n4"], ["n3", "n5"], [*RACKS]))
    left, pods, done = set(range(dice.choice((4, 8)))), [], dice.random() < 0.15
    for _ in range(dice.randrange(1, 5)):
        node = dice.choice(where) if dice.random() < 0.8 else ""
        phase = (
            dice.choice(("Pending", "Running", "Running", "Succeeded", "Failed"))
            if node
            else "Pending"
        )
        gpus = frozenset(dice.sample(sorted(left), min(len(left), 2 * (node == "n0"))))
        left -= gpus
        pods.append(Member(node, "Succeeded" if done else phase, gpus, dice.random() < 0.05))
    return pods


def close(members: list[Member]) -> str:
    alive = [
        each
        for each in members
        if each.node and not each.deleting and each.phase not in ("Succeeded", "Failed")
    ]
    nodes = {each.node for each in alive}
    if not nodes:
        return "earlier"
    if len(nodes) == 1:
        gpus = frozenset[int]().union(*(each.gpus for each in alive))
        inside = bool(gpus) and any(gpus <= {*half} for half in HALVES)
        return f"in one island of node {min(nodes)}" if inside else f"on node {min(nodes)}"
    for kind, of in (("rack", RACKS), ("block", BLOCKS)):
        names = {of[node] for node in nodes}
        if len(names) == 1 and names != {""}:
            return f"on {len(nodes)} nodes of {kind} {min(names)}"
    return f"on {len(nodes)} nodes"


def by_rule(members: list[Member], least: int, reason: str, preempted_for: str) -> tuple[str, str]:
    """Phase and sentence."""
    succeeded = sum(each.phase == "Succeeded" for each in members)
    if succeeded == len(members) >= least:
        return (
            "Completed",
            "its pod succeeded" if succeeded == 1 else f"all {succeeded} pods succeeded",
        )
    placed = sum(bool(each.node) and not each.deleting for each in members)
    if placed < least:
        waiting = sum(not each.node and not each.deleting for each in members)
        more = f"{least - placed} more {'pod' if least - placed == 1 else 'pods'}"
        why = f"needs {more} to start, {waiting} pending"
        if len(members) < least:
            why = f"needs {least} pods to start, {len(members)} exist"
        why = f"preempted by {preempted_for}" if preempted_for else why
        why = reason or why
        return "Pending", f"{placed} of {least} pods are bound; {why}" if placed else why
    text = f"{placed} of {len(members)} pods placed {close(members)}"
    waits = any(not each.node and not each.deleting for each in members)
    return "Running", f"{text}; remaining pods: {reason}" if waits and reason else text


def made(members: list[Member], least: int) -> tuple[Scheduler, Gang]:
    scheduler = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [factories.node(n, rack=RACKS[n], block=BLOCKS[n]) for n in RACKS]
    grants = tuple(
        factories.grant(f"g-{i}", *sorted(m.gpus)) for i, m in enumerate(members) if m.gpus
    )
    facts.append(factories.report("n0", factories.topology(8, HALVES), grants=grants))
    facts.append(factories.gang("g", least))
    for index, each in enumerate(members):
        pod = factories.pod(f"g-{index}", len(each.gpus), "g", node=each.node, phase=each.phase)
        facts.append(replace(pod, deleting=each.deleting))
    for fact in facts:
        apply(scheduler, fact)
    return scheduler, scheduler.state.gangs["ns", "g", True]


def test_phase_and_sentence_are_those_of_the_rule() -> None:
    seen = Counter[str]()
    for seed in seeds(160):
        dice = random.Random(seed)
        members, least = drawn(dice), dice.randrange(1, 4)
        scheduler, gang = made(members, least)
        gang.attempt.reason = reason = dice.choice(("", "needs 3 GPUs"))
        gang.preemption.preempted_for = by = dice.choice(("", "gang urgent"))
        expected = by_rule(members, least, reason, by)
        assert (gang_status.phase(gang), gang_status.describe(scheduler.state, gang)) == expected, (
            f"seed {seed}"
        )
        seen[expected[0]] += 1
        seen.update(
            word
            for word in (
                "island",
                "rack",
                "block",
                "earlier",
                "remaining",
                "bound;",
                "preempted",
                "exist",
                "more",
            )
            if word in expected[1]
        )
    assert not ALL_SEEDS or len(seen) == 12
    assert not ALL_SEEDS or min(seen.values()) >= 2, seen


def test_a_gang_with_enough_pods_says_of_which_task_it_has_too_few() -> None:
    seen = Counter[str]()
    for seed in seeds(60):
        dice = random.Random(seed)
        have = {task: dice.randrange(3) for task in "abcde"}
        wanted = {task: dice.randrange(1, 3) for task in "abcde"[: dice.randrange(1, 6)]}
        least, placed = dice.randrange(1, 6), sum(have.values())
        scheduler = new_scheduler(factories.LEVELS)
        apply(scheduler, factories.node("n0"))
        apply(scheduler, factories.gang("g", least, task_min=tuple(wanted.items())))
        for task, count in have.items():
            for index in range(count):
                pod = factories.pod(f"{task}-{index}", 0, "g", node="n0", phase="Running")
                apply(scheduler, replace(pod, task=task))
        apply(scheduler, factories.pod("waits", 1, "g"))
        gang = scheduler.state.gangs["ns", "g", True]
        gang.attempt.reason = "needs 1 pod"
        short = [
            f"{have[task]} of {wanted[task]} of task {task}"
            for task in wanted
            if have[task] < wanted[task]
        ]
        if placed < least:
            expected = f"{placed} of {least} pods are bound; " * bool(placed) + "needs 1 pod"
        elif short:
            bound = "1 pod is bound, " if placed == 1 else f"{placed} pods are bound, "
            more = ", ..." if len(short) > 3 else ""
            expected = f"{bound}{', '.join(short[:3])}{more}; needs 1 pod"
        else:
            expected = f"{placed} of {placed + 1} pods placed "
        assert gang_status.describe(scheduler.state, gang).startswith(expected), seed
        seen["short" if placed >= least and short else "other"] += 1
        seen["more"] += len(short) > 3
    assert not ALL_SEEDS or min(seen.values()) >= 2, seen


def test_a_status_is_published_when_phase_reason_or_counts_change() -> None:
    members = [Member("n0", "Running"), Member("n1", "Pending"), Member("", "Pending")]
    scheduler, gang = made(members, 2)
    (first,) = gang_status.status_update(scheduler.state, gang, "", {})
    assert isinstance(first, UpdateGangStatus)
    assert (first.namespace, first.gang, first.phase) == ("ns", "g", "Running")
    assert first.reason == "2 of 3 pods placed on 2 nodes of rack r0"
    assert (first.running, first.succeeded, first.failed) == (1, 0, 0)
    assert (first.has_object, first.pods, first.quiet, first.of_job, first.native_version) == (
        True,
        ("g-2",),
        False,
        False,
        "",
    )
    assert gang_status.status_update(scheduler.state, gang, "", {}) == []
    for phase, counts in (("Failed", (1, 0, 1)), ("Succeeded", (1, 1, 0)), ("Running", (2, 0, 0))):
        apply(scheduler, factories.pod("g-1", 0, "g", node="n1", phase=phase))
        (then,) = gang_status.status_update(scheduler.state, gang, "", {})
        assert isinstance(then, UpdateGangStatus)
        assert (then.running, then.succeeded, then.failed) == counts
        assert gang_status.status_update(scheduler.state, gang, "", {}) == []
    gang.attempt.reason = "no room"
    gang.published.suppress_event = gang.published.of_job = True
    apply(scheduler, factories.gang("g", 2, native_version="v1alpha1"))
    (last,) = gang_status.status_update(scheduler.state, gang, "", {})
    assert isinstance(last, UpdateGangStatus)
    assert (last.quiet, last.of_job, last.native_version) == (True, True, "v1alpha1")
    assert last.reason.endswith("; remaining pods: no room")


@pytest.mark.parametrize(
    ("before", "then"), [("Running", ["needs 2 pods to start, 0 exist"]), ("Succeeded", [])]
)
def test_a_podgroup_whose_last_pod_was_deleted_says_so(before: str, then: list[str]) -> None:
    """A completed one stays so. Otherwise its status would count pods that are gone for ever."""
    scheduler = new_scheduler(factories.LEVELS)
    pods = [factories.pod(f"g-{i}", 8, "g", node=f"n{i}", phase=before) for i in range(2)]
    nodes = [factories.node(f"n{i}") for i in range(2)]
    decisions = schedule_once(scheduler, [*nodes, factories.gang("g", 2), *pods], 0.0)
    assert any(isinstance(each, UpdateGangStatus) for each in decisions)
    decisions = schedule_once(scheduler, [PodGone(pod.uid) for pod in pods], 10.0)
    found = [each for each in decisions if isinstance(each, UpdateGangStatus)]
    assert [each.reason for each in found] == then
    assert all((each.phase, each.running) == ("Pending", 0) for each in found)


def test_a_gang_without_members_has_the_status_that_its_controller_gives_it() -> None:
    scheduler, gang = made([], 2)
    assert gang_status.status_update(scheduler.state, gang, "", {}) == []
    gang.published.override = ("Inqueue", "waits for its Job")
    (update,) = gang_status.status_update(scheduler.state, gang, "", {})
    assert isinstance(update, UpdateGangStatus)
    assert (update.phase, update.reason) == ("Inqueue", "waits for its Job")


@pytest.mark.parametrize("native", ["", "v1alpha1"])
def test_a_gang_whose_status_cannot_be_computed_says_so_once(native: str) -> None:
    scheduler, gang = made([Member("n0", "Running"), Member("", "Pending")], 2)
    apply(scheduler, factories.gang("g", 2, native_version=native))
    (update,) = gang_status.plain_status(gang, "set aside")
    assert isinstance(update, UpdateGangStatus)
    assert (update.namespace, update.gang, update.phase, update.reason) == (
        "ns",
        "g",
        "Unknown",
        "set aside",
    )
    assert (update.has_object, update.pods, update.native_version) == (True, ("g-1",), native), (
        "g-0 is bound"
    )
    assert gang_status.plain_status(gang, "set aside") == []
    assert gang_status.plain_status(gang, "for another reason")
    assert gang_status.status_update(scheduler.state, gang, "", {}), (
        "it is published again once it can be"
    )

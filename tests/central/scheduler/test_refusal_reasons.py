"""A reason stays true while its gang is not tried again."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, GangSeen, PodGone, PodSeen, QueueAccess, QueueSeen
from central.scheduler import refusal_reasons
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import explain
from central.scheduler.placement.explain import WORK_LIMIT
from central.scheduler.scheduler import Scheduler
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.state_copy import fingerprint
from tests.central.scheduler.test_cycle import told
from tests.counted_calls import calls


def members(name: str, size: int, gpus: int) -> list[PodSeen]:
    return [factories.pod(f"{name}-{rank}", gpus, gang=name) for rank in range(size)]


def two_nodes() -> tuple[Scheduler, str]:
    """A gang that needs 3 nodes of 2, with its reason."""
    cluster = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [factories.node("a"), factories.node("b"), factories.node("c", ready=False)]
    facts += [factories.gang("big", 3), *members("big", 3, 8)]
    return cluster, told(schedule_once(cluster, facts, 0.0), "big")


def test_what_others_take_later_is_not_called_free() -> None:
    cluster, reason = two_nodes()
    assert "fits 2 of 3 (16 of 16 GPUs free on 2 nodes; 1 node: not ready)" in reason
    epoch = cluster.state.pending.epoch
    decisions = schedule_once(cluster, [factories.pod("small", 4)], 1.0)
    assert cluster.state.pending.epoch == epoch, "nothing was freed, so the gang is not tried again"
    assert "fits 1 of 3 (12 of 16 GPUs free on 2 nodes; 1 node: not ready)" in told(
        decisions, "big"
    )


def test_a_reason_that_nothing_changes_is_written_once() -> None:
    cluster, _ = two_nodes()
    (entry,) = cluster.refused.values()
    assert schedule_once(cluster, [], 1.0) == []
    assert cluster.refused[next(iter(cluster.refused))] is entry


def sentences(function: Callable[[], object]) -> int:
    """How often it makes the sentence of a refusal, which counts all nodes."""
    return calls(function, explain.reason.__code__)


def test_a_refusal_is_put_into_words_once_if_nothing_is_bound_after_it() -> None:
    cluster, _ = two_nodes()
    more: list[Fact] = [factories.gang("more", 4), *members("more", 4, 8)]
    assert sentences(lambda: schedule_once(cluster, more, 1.0)) == 1
    assert sentences(lambda: schedule_once(cluster, [], 2.0)) == 0
    freed = [factories.node("d", gpus=4)]
    assert sentences(lambda: schedule_once(cluster, freed, 3.0)) == 2  # of each gang
    for name, size in (("big", 3), ("more", 4)):
        gang = cluster.state.gangs["ns", name, True]
        assert f"fits 2 of {size} (16 of 16 GPUs free on 2 nodes" in gang.attempt.reason, (
            gang.attempt.reason
        )


@pytest.mark.parametrize("asked", [False, True])
def test_a_refusal_counts_what_others_have_taken_since_its_cycle(asked: bool) -> None:
    """Though nothing was bound or freed in between. asked: by a query, before the next cycle."""
    cluster, _ = two_nodes()
    taken = factories.pod("other", 4, node="a", phase="Running")
    if asked:
        apply(cluster, taken)
        refusal_reasons.refresh_one(cluster, cluster.state.gangs["ns", "big", True])
    else:
        schedule_once(cluster, [taken], 1.0)
    reason = cluster.state.gangs["ns", "big", True].attempt.reason
    assert "fits 1 of 3 (12 of 16 GPUs free" in reason


def test_a_refusal_counts_what_is_bound_after_it_in_the_same_cycle() -> None:
    cluster, _ = two_nodes()
    more: list[Fact] = [factories.gang("more", 4), *members("more", 4, 8)]
    made = partial(schedule_once, cluster, [*more, factories.pod("small", 4, created=9.0)], 1.0)
    assert sentences(made) == 3  # when "more" is refused, and of both gangs afterwards
    for name in ("big", "more"):
        reason = cluster.state.gangs["ns", name, True].attempt.reason
        assert "(12 of 16 GPUs free on 2 nodes; 1 node: not ready)" in reason


def test_many_unlike_reasons_are_brought_up_to_date_in_turn() -> None:
    """So that a cycle does not pay for all of them at once; a query pays for the one it asks for."""
    cluster, _ = two_nodes()
    most = refusal_reasons.RECOMPUTED_MOST
    facts: list[Fact] = []
    for extra in range(2 * most):
        pods = [
            factories.pod(f"g{extra}-{i}", 8, gang=f"g{extra}", cpu=101 + extra) for i in range(3)
        ]
        facts += [factories.gang(f"g{extra}", 3), *pods]
    schedule_once(cluster, facts, 1.0)
    schedule_once(cluster, [factories.pod("small", 4)], 2.0)

    def stale() -> list[str]:
        waiting = cluster.state.pending.waiting.values()
        return [gang.name for gang in waiting if "16 of 16" in gang.attempt.reason]

    left = stale()
    assert 0 < len(left) <= most + 1
    gang = cluster.state.gangs["ns", left[-1], True]
    refusal_reasons.refresh_one(cluster, gang)
    assert "12 of 16 GPUs free" in gang.attempt.reason
    schedule_once(cluster, [], 3.0)
    schedule_once(cluster, [], 4.0)
    assert stale() == []


def test_gangs_refused_alike_share_a_refusal_and_are_updated_in_turn() -> None:
    """So that a cycle costs the same whether 200 or 20,000 gangs wait."""
    cluster, _ = two_nodes()
    most = refusal_reasons.EXAMINED_MOST
    facts: list[Fact] = []
    for extra in range(2 * most):
        facts += [factories.gang(f"g{extra}", 3), *members(f"g{extra}", 3, 8)]
    schedule_once(cluster, [*facts, factories.pod("gone", 8, cpu=1)], 1.0)
    schedule_once(cluster, [PodGone("uid-gone")], 1.5)
    decisions = schedule_once(cluster, [factories.pod("small", 4)], 2.0)
    assert 0 < len(decisions) <= most + 5  # small, and the gangs that were tried
    assert len({id(refusal) for refusal in cluster.refused.values()}) <= 2  # one has a reservation
    for now in (3.0, 4.0, 5.0):
        assert len(schedule_once(cluster, [], now)) <= most + 1
    waiting = cluster.state.pending.waiting.values()
    assert {"12 of 16 GPUs free" in gang.attempt.reason for gang in waiting} == {True}
    assert schedule_once(cluster, [], 6.0) == []


def test_a_refusal_outlives_the_gang_that_was_tried_for_it() -> None:
    cluster, _ = two_nodes()
    facts: list[Fact] = []
    for name in ("first", "second", "third"):
        facts += [factories.gang(name, 3), *members(name, 3, 8)]
    schedule_once(cluster, facts, 1.0)
    gone: list[Fact] = [PodGone(f"uid-first-{rank}") for rank in range(3)]
    schedule_once(cluster, gone, 2.0)
    schedule_once(cluster, [factories.pod("small", 4)], 3.0)
    for name in ("second", "third"):
        assert "12 of 16 GPUs free" in cluster.state.gangs["ns", name, True].attempt.reason


def of_tenant(space: str, name: str) -> list[Fact]:
    pods = (
        replace(each, namespace=space, uid=f"{space}-{each.name}") for each in members(name, 3, 8)
    )
    return [GangSeen(space, name, 3), *pods]


def test_a_tenant_does_not_read_the_reason_of_another_that_was_refused_alike() -> None:
    """The queue is closed to one of them while gangs of both share a refusal, in a cycle that ends before it tries
    them again; then both ask why they wait."""
    cluster, _ = two_nodes()
    facts: list[Fact] = [QueueSeen("default", uid="u"), factories.pod("gone", 8, cpu=1)]
    for name in ("one", "two", "three"):
        facts += [*of_tenant("red", name), *of_tenant("blue", name)]
    schedule_once(cluster, facts, 1.0)
    schedule_once(cluster, [PodGone("uid-gone")], 2.0)
    gangs = [gang for gang in cluster.state.gangs.values() if gang.namespace in ("red", "blue")]
    assert len({id(cluster.refused[gang.key]) for gang in gangs}) == 1
    theirs = QueueSeen("default", uid="u", access=QueueAccess(namespaces=("ns", "red")))
    schedule_once(cluster, [theirs, factories.pod("small", 4)], 3.0, lambda: True)
    for gang in gangs:
        refusal_reasons.refresh_one(cluster, gang)
    refused = [gang for gang in gangs if "namespace blue may not use" in gang.attempt.reason]
    assert [gang.namespace for gang in refused] == ["blue"] * 3


def test_without_nodes_the_reason_says_so() -> None:
    cluster = new_scheduler(factories.LEVELS)
    decided = schedule_once(cluster, [factories.gang("g", 1), factories.pod("g-0", 8, "g")], 0.0)
    assert told(decided, "g") == "needs 1 pod x 8 GPUs; the cluster has no nodes"


def test_a_reason_that_reaches_the_work_limit_takes_nothing() -> None:
    """Pods of one gang are placed one by one on a trial, to say how many fit."""
    rules = factories.even("big", RACK)
    nodes = [factories.node(f"n{number}", rack=f"r{number // 3}") for number in range(4)]
    pods = [
        factories.pod(f"big-{rank}", 8, "big", rules=rules, labels=(("app", "big"),))
        for rank in range(4)
    ]
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [*nodes, factories.gang("big", 4), *pods], 0.0)
    before = fingerprint(made)
    made.state.snapshot.meter.first_limit = 100
    schedule_once(made, [factories.pod("new", 0)], 0.1)
    assert WORK_LIMIT in next(iter(made.state.gangs.values())).attempt.reason
    assert fingerprint(made)[1:] == before[1:]
    check_invariants(made)

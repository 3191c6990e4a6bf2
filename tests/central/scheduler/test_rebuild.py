"""What a state that is built again must not forget, whatever raises before, in between and meanwhile."""

import operator
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import (
    Fact,
    NodeReported,
    OwnerGone,
    OwnerSeen,
    PodGone,
    PodSeen,
    QueueSeen,
)
from central.model.volumes import VolumeSeen
from central.scheduler import apply as apply_module
from central.scheduler import partial_gangs, rebuild
from central.scheduler.cycle import schedule_once
from central.scheduler.inventory.pods import EVICTION_AGREED, EVICTION_ENDED, start_leaving
from central.scheduler.placement.request import PlacementRequest
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.reservation.release_forecast import TakenCapacity
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.reserved_place import ReservedPlace
from central.scheduler.reserved_capacity import ReservedCapacity
from central.scheduler.scheduler import Scheduler
from central.scheduler.state import handlers
from central.scheduler.state.gangs import Gang
from central.scheduler.state.owner_gangs import HOLD_S
from central.scheduler.status import gang_status
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import job
from tests.simulation.local_disks import LocalDisks


def raising(real: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
    """Raises after the real call, when its arguments are such."""

    def call(*args: Any) -> Any:
        result = real(*args)
        if when(*args):
            raise RecursionError("deep")
        return result

    return call


def failing(patch: pytest.MonkeyPatch, kind: type[Any], when: Callable[[Any], bool]) -> None:
    table = apply_module.HANDLERS
    patch.setitem(table, kind, raising(table[kind], lambda _, fact: when(fact)))


def names(decisions: list[Decision], kind: type[Decision] = Bind) -> set[str]:
    return {str(getattr(each, "name", "")) for each in decisions if isinstance(each, kind)}


def cluster(*facts: Fact) -> Scheduler:
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, facts, 0.0)
    return scheduler


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("first", ["a", "b"])
def test_a_node_whose_report_is_lost_gets_no_pod_after_further_rebuilds(
    first: str, earlier: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own report or that of another node fails first. The last report ends the loss."""
    facts: list[Fact] = [
        factories.node("a"),
        factories.node("b"),
        factories.pod("runs", 1, node="a"),
    ]
    scheduler = cluster(*facts, *([factories.report("a")] if earlier else ()))
    reports = [factories.report(name, generation=2) for name in sorted("ab", key=first.__ne__)]
    with monkeypatch.context() as patch:
        failing(patch, NodeReported, lambda fact: fact.generation == 2)
        schedule_once(scheduler, reports, 1.0)
        for now in (2.0, 3.0):
            rebuild.rebuild(scheduler)
            assert not names(schedule_once(scheduler, [*job("new", 1, gpus=1), *reports], now))
            check_invariants(scheduler)
    good = factories.report("b", generation=3)
    assert names(schedule_once(scheduler, [good], 100.0)) == {"new-0"}


def test_a_binding_is_decided_although_the_end_of_its_attempt_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = cluster(factories.node("a"))
    after = raising(ReservedCapacity.on_bound, lambda *_: True)
    monkeypatch.setattr(ReservedCapacity, "on_bound", after)
    decisions = schedule_once(scheduler, job("g", 2, gpus=2), 1.0)
    assert names(decisions) == {"g-0", "g-1"}
    assert all(pod.assumed and pod.node == "a" for pod in scheduler.state.pods.values())


def test_evictions_are_decided_although_that_of_another_gang_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both gangs are partial for too long, and the second raises."""
    gangs = [factories.gang(name, 2) for name in ("g", "h")]
    parts = [factories.pod(f"{gang.name}-0", 1, gang.name, node="a") for gang in gangs]
    scheduler = cluster(factories.node("a"), *gangs, *parts)
    real = partial_gangs.undo_partial

    def undo(gang: Gang, now: float) -> list[Decision]:
        if gang.name == "h":
            raise RecursionError
        return real(gang, now)

    monkeypatch.setattr(partial_gangs, "undo_partial", undo)
    schedule_once(scheduler, [], 1.0)
    decisions = schedule_once(scheduler, [], 100.0)
    leaving = {pod.seen.name for pod in scheduler.state.pods.values() if pod.evicting}
    assert names(decisions, Evict) == leaving == {"g-0"}


@pytest.mark.parametrize("share", [0, 40])
def test_an_unconfirmed_pod_that_is_set_aside_keeps_its_planned_gpus(
    share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = factories.topology(shares=True)
    scheduler = cluster(factories.node("a", shares=True), factories.report("a", what))
    pod = factories.part("g-0", share) if share else factories.pod("g-0", 2)
    schedule_once(scheduler, [pod], 1.0)
    planned, devices = scheduler.state.pods[pod.uid].gpus, scheduler.state.planned_devices("a")
    assert planned
    assert devices
    failing(monkeypatch, PodSeen, lambda fact: bool(fact.node))
    schedule_once(scheduler, [replace(pod, node="a")], 2.0)
    for _ in range(2):
        rebuild.rebuild(scheduler)
        assert scheduler.state.pods[pod.uid].gpus == planned
        assert [each.device_ids for each in scheduler.state.planned_devices("a")] == [
            each.device_ids for each in devices
        ]
        check_invariants(scheduler)


@pytest.mark.parametrize("others", [0, 1])
def test_a_pod_bound_elsewhere_takes_its_node_although_its_fact_fails(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, or while another pod is set aside, so that it is tried apart first."""
    pods = [factories.pod(f"p-{number}", 6, cpu=10**9) for number in range(others + 1)]
    scheduler = cluster(factories.node("a"), factories.node("b", gpus=0), *pods)
    failing(monkeypatch, PodSeen, lambda fact: bool(fact.node))
    seen = [replace(pod, node="b" if number else "a") for number, pod in enumerate(pods)]
    decisions = schedule_once(scheduler, [*reversed(seen), *job("large", 1, 4)], 1.0)
    check_invariants(scheduler)
    assert not names(decisions)
    assert scheduler.state.pods[pods[0].uid].node == "a"


@pytest.mark.parametrize("part", ["reconcile_gpus", "move_pod", "node_of"])
@pytest.mark.parametrize("nth", range(1, 7))
def test_an_exception_while_the_state_is_built_again(
    nth: int, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is built once more. Nothing that is not confirmed is lost, even with the node's report."""
    scheduler = cluster(factories.node("a"), factories.report("a"), *job("g", 2, gpus=2))
    before = {uid: (pod.node, pod.gpus, pod.life) for uid, pod in scheduler.state.pods.items()}
    calls = count(1)
    with monkeypatch.context() as patch:
        fails = raising(getattr(handlers, part), lambda *_: next(calls) == nth)
        patch.setattr(handlers, part, fails)
        rebuild.rebuild(scheduler)
    after = {uid: (pod.node, pod.gpus, pod.life) for uid, pod in scheduler.state.pods.items()}
    assert after == before
    check_invariants(scheduler)


def test_a_volume_is_not_free_although_the_fact_that_it_is_taken_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disks = LocalDisks(["a"])
    pods = [replace(factories.pod(f"p-{i}", 1), claims=(f"c{i}",)) for i in range(7)]
    claims = [disks.claim(pod.claims[0]) for pod in pods]
    scheduler = cluster(factories.node("a"), *disks.facts(), *claims, pods[0])
    ((_, disk),) = scheduler.state.podclasses.storage.unbound(pods[0])
    failing(monkeypatch, VolumeSeen, lambda fact: not fact.free)
    schedule_once(scheduler, disks.given("c0", disk, "a"), 1.0)
    decisions = schedule_once(scheduler, pods[1:], 2.0)
    given = [volume for each in decisions if isinstance(each, Bind) for _, volume in each.claims]
    assert len(set(given)) == len(given) == 5
    assert disk not in given
    check_invariants(scheduler)


def test_nics_that_agents_may_have_been_told_stay_planned() -> None:
    """With fewer pods than at the time of the plan, a new one would differ."""
    what = factories.carded(factories.topology(8), 40)
    scheduler = cluster(factories.node("n0"), factories.report("n0", what))
    pods = [factories.wishing(factories.pod(f"p{i}"), 16) for i in range(4)]
    schedule_once(scheduler, pods, 1.0)
    node = scheduler.state.nodes["n0"]
    first = [found[0] for found in node.planned_nics.values()]
    gone = next(i for i in range(1, 4) if first[i] == first[0])
    schedule_once(scheduler, [PodGone(pods[gone].uid)], 2.0)
    planned = dict(node.planned_nics)
    rebuild.rebuild(scheduler)
    assert dict(scheduler.state.nodes["n0"].planned_nics) == planned
    assert len(planned) == 3


def test_an_admitted_group_whose_pods_come_after_a_rebuild_says_how_they_are() -> None:
    group, *pods = job("g", 2, gpus=1)
    scheduler = cluster(factories.node("n0"), group)
    assert phases(scheduler) == {"g": "Inqueue"}
    rebuild.rebuild(scheduler)
    schedule_once(scheduler, pods, 1.0)
    assert phases(scheduler) == {"g": "Running"}


def counters(scheduler: Scheduler) -> list[object]:
    return [
        scheduler.queue_statuses,
        scheduler.hypernode_statuses,
        scheduler.device_usage,
        scheduler.elastic.histories,
    ]


def phases(scheduler: Scheduler) -> dict[str, str]:
    return {gang.name: gang_status.phase(gang) for gang in scheduler.state.gangs.values()}


def test_what_only_the_scheduler_knows_of_gangs_and_pods_is_carried_over() -> None:
    """But victims whose eviction was not asked for yet stay, and their gang has not given way."""
    scheduler = cluster(factories.node("n0"), *job("runs", 2, gpus=1), *job("waits", 1, gpus=9))
    held, victims = Reservation.by_evictions, scheduler.state.gangs["ns", "runs", True]
    waits = scheduler.state.gangs["ns", "waits", True]
    for number, gang in enumerate((victims, waits), 1):
        gang.attempt.reason, gang.attempt.partial_since = f"reason {number}", 10.0 * number
        gang.attempt.bind_failures, gang.attempt.failures_handled = 2 * number, number
        gang.preemption.preempted_for = "ns/other"
    pods = list(victims.members.values())
    start_leaving(pods)
    pods[1].advance(EVICTION_AGREED)
    pods[0].evict_backoff = pods[0].evict_backoff._replace(refusals=3, not_before=50.0)
    place = ReservedPlace.on(
        scheduler.state.snapshot,
        TakenCapacity(np.zeros(0, np.int64), np.zeros((0, 5), np.int64), [], frozenset()),
        newest=0.0,
    )
    request = PlacementRequest(((factories.spec(9), 1),))
    for asked in (True, False):  # one of the victims, and then both
        found = held(waits, request, place, 1.0)
        found.victims = tuple(pods[:1] if asked else ())
        scheduler.reservations[waits.key] = found
        before = {gang.name: gang for gang in scheduler.state.gangs.values()}
        epoch, kept = scheduler.state.pending.epoch, counters(scheduler)
        rebuild.rebuild(scheduler)
        assert scheduler.state.pending.epoch > epoch, "all refusals are void"
        assert all(map(operator.is_, counters(scheduler), kept))
        for gang in scheduler.state.gangs.values():
            old = before[gang.name]
            assert gang is not old
            for name in ("reason", "partial_since", "bind_failures", "failures_handled"):
                assert getattr(gang.attempt, name) == getattr(old.attempt, name)
            assert (gang.started, gang.published) == (old.started, old.published)
        now = {pod.seen.name: pod for pod in scheduler.state.pods.values()}
        assert not now["runs-0"].evicting, "nobody was asked to evict it"
        assert now["runs-1"].eviction_agreed
        assert now["runs-0"].evict_backoff == (3, 50.0)
        given_way = {each.name: each.preemption.preempted_for for each in before.values()}
        assert given_way == {"runs": "ns/other", "waits": ""}
        check_invariants(scheduler)


def test_a_queue_with_which_no_tree_can_be_built_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queues = [QueueSeen(name) for name in ("a", "bad", "c", "d")]
    scheduler = cluster(factories.node("n0"), *queues)
    fails = raising(Queues.settle, lambda made: "bad" in made.by_name)
    monkeypatch.setattr(Queues, "settle", fails)
    rebuild.rebuild(scheduler)
    assert {"a", "c", "d"} <= scheduler.queues.by_name.keys()
    assert "bad" not in scheduler.queues.by_name
    assert scheduler.quarantine.counts() == {"Queue": 1}


@pytest.mark.parametrize("guilty", [False, True])
def test_pods_wait_for_their_controller_no_longer_because_of_a_rebuild(guilty: bool) -> None:
    """But not one whose fact fails."""
    pods = [
        replace(factories.pod(f"g-{i}", 1), owner="set", owner_name="statefulset/g")
        for i in range(2)
    ]
    other = OwnerSeen("other", "statefulset/other")
    scheduler = cluster(factories.node("n0"), other, *pods)
    scheduler.state.now = HOLD_S / 2
    rebuild.rebuild(scheduler, *pods[:guilty])
    assert scheduler.state.owners.held == {pod.uid: HOLD_S for pod in pods[guilty:]}
    assert names(schedule_once(scheduler, [], HOLD_S)) == {pod.name for pod in pods[guilty:]}
    check_invariants(scheduler)


def test_pods_whose_controllers_nobody_can_read_go_by_their_own() -> None:
    """A pod waits while other controllers are known; the only one of these is left out."""
    other = OwnerSeen("other", "statefulset/other")
    pod = replace(factories.pod("g-0", 1), owner="set", owner_name="statefulset/g")
    scheduler = cluster(factories.node("n0"), other, pod)
    assert scheduler.state.owners.held
    rebuild.rebuild(scheduler, other)
    assert not scheduler.state.owners.held
    assert names(schedule_once(scheduler, [], 0.1)) == {"g-0"}


def test_a_pod_that_was_evicted_still_leaves_when_it_is_set_aside() -> None:
    """What it holds becomes free, and sizes wait for that; unless the API server refuses its eviction."""
    runs = factories.pod("runs", 8, node="a", phase="Running")
    scheduler = cluster(factories.node("a"), factories.report("a"), runs)
    start_leaving([scheduler.state.pods[runs.uid]])
    rebuild.rebuild(scheduler, runs)
    state, pod = scheduler.state, scheduler.state.pods[runs.uid]
    assert state.gang_of(pod) is None
    assert state.some_pod_leaves()
    assert state.others_leaving() == [pod]
    check_invariants(scheduler)
    pod.advance(EVICTION_ENDED)
    assert not state.some_pod_leaves()
    assert not state.others_leaving()
    check_invariants(scheduler)


def test_nics_of_a_report_that_is_lost_are_not_planned() -> None:
    what = factories.carded(factories.topology(8), 40)
    report = factories.report("n0", what)
    scheduler = cluster(factories.node("n0"), report)
    schedule_once(scheduler, [factories.wishing(factories.pod("p0"), 16)], 1.0)
    assert scheduler.state.nodes["n0"].planned_nics
    rebuild.rebuild(scheduler, report)
    assert not scheduler.state.nodes["n0"].planned_nics
    check_invariants(scheduler)


def test_a_controller_that_has_gone_is_forgotten_with_its_last_pod() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    owner = OwnerSeen("rs-1", "replicaset/web-1", "deployment/web", gang_min=1)
    pod = replace(factories.pod("a", 1), owner="rs-1", owner_name="replicaset/web-1")
    schedule_once(scheduler, [factories.node("n1"), owner, pod], 0.0)
    schedule_once(scheduler, [OwnerGone("rs-1")], 1.0)
    rebuild.rebuild(scheduler)
    assert scheduler.state.owners.seen, "its settings stay in effect for the pod"
    schedule_once(scheduler, [PodGone("uid-a")], 2.0)
    assert not scheduler.state.owners.seen

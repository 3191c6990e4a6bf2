"""All or nothing, retries, undoing, and the sentence that every wait has."""

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict, UpdateGangStatus
from central.model.facts import BindDone, BindFailed, Fact, PodGone, QueueSeen, Taint
from central.scheduler import cycle
from central.scheduler.cycle import schedule_once
from central.scheduler.partial_gangs import UNDO_AFTER_S
from protos.names import DOMAINS, RACK
from tests.central import factories
from tests.central.scheduler import small_cluster
from tests.central.scheduler.invariants import check_invariants


def told(decisions: list[Decision], name: str) -> str:
    return next(d.reason for d in decisions if isinstance(d, UpdateGangStatus) and d.gang == name)


def bound(decisions: list[Decision]) -> list[str]:
    return sorted(d.name for d in decisions if isinstance(d, Bind))


def members(name: str, size: int, gang_min: int | None = None) -> list[Fact]:
    return [factories.pod(f"{name}-{rank}", 8, name, gang_min=gang_min) for rank in range(size)]


def test_nothing_is_bound_until_the_minimum_exists() -> None:
    cluster = new_scheduler(factories.LEVELS)
    facts = [factories.node("a"), factories.node("b"), factories.gang("g", 2), *members("g", 1)]
    decisions = schedule_once(cluster, facts, 0.0)
    assert not bound(decisions)
    assert told(decisions, "g") == "needs 2 pods to start, 1 exist"
    assert bound(schedule_once(cluster, members("g", 2), 0.0)) == ["g-0", "g-1"]


def test_a_gang_by_label_needs_no_object() -> None:
    cluster = new_scheduler(factories.LEVELS)
    facts = [factories.node("a"), factories.node("b"), *members("g", 1, gang_min=2)]
    assert not bound(schedule_once(cluster, facts, 0.0))
    assert bound(schedule_once(cluster, members("g", 2, gang_min=2), 0.0)) == ["g-0", "g-1"]


def test_a_pod_that_names_no_gang_there_is_waits_for_it() -> None:
    cluster = new_scheduler(factories.LEVELS)
    decisions = schedule_once(cluster, [factories.node("a"), *members("g", 1)], 0.0)
    assert told(decisions, "g") == "PodGroup g does not exist in namespace ns"


def test_half_a_gang_is_undone_when_the_rest_does_not_follow() -> None:
    cluster = new_scheduler(factories.LEVELS)
    pods = members("g", 2)
    schedule_once(
        cluster, [factories.node("a"), factories.node("b"), factories.gang("g", 2), *pods], 0.0
    )
    first = cluster.state.pods["uid-g-0"].node
    gone: list[Fact] = [
        BindDone("uid-g-0", first),
        factories.pod("g-0", 8, "g", node=first),
        BindFailed("uid-g-1", "b", "the pod is gone", final=True),
        PodGone("uid-g-1"),
    ]
    assert not [d for d in schedule_once(cluster, gone, 1.0) if isinstance(d, Evict)]
    assert not [d for d in schedule_once(cluster, [], UNDO_AFTER_S) if isinstance(d, Evict)]
    evictions = [d for d in schedule_once(cluster, [], UNDO_AFTER_S + 1.0) if isinstance(d, Evict)]
    assert [(d.name, d.node) for d in evictions] == [("g-0", first)]
    assert evictions[0].why.startswith("gang g is incomplete: 1 of 2 pods were bound")


def test_a_gang_that_once_ran_keeps_what_it_has() -> None:
    cluster = new_scheduler(factories.LEVELS)
    facts = [factories.node("a"), factories.node("b"), factories.gang("g", 2), *members("g", 2)]
    schedule_once(cluster, facts, 0.0)
    running = [
        factories.pod(f"g-{i}", 8, "g", node=cluster.state.pods[f"uid-g-{i}"].node, phase="Running")
        for i in range(2)
    ]
    schedule_once(cluster, running, 1.0)
    schedule_once(cluster, [PodGone("uid-g-1")], 2.0)
    assert not [d for d in schedule_once(cluster, [], 1000.0) if isinstance(d, Evict)]
    replacement = factories.pod("g-1", 8, "g")
    assert bound(schedule_once(cluster, [replacement], 1001.0)) == ["g-1"]


def test_one_failed_binding_of_a_gang_is_completed_elsewhere() -> None:
    cluster = new_scheduler(factories.LEVELS)
    nodes = [factories.node(name, rack="r") for name in "abc"]
    schedule_once(cluster, [*nodes, factories.gang("g", 2), *members("g", 2)], 0.0)
    failed = cluster.state.pods["uid-g-1"].node
    facts: list[Fact] = [
        BindFailed("uid-g-1", failed, "the node is full"),
        factories.node(failed, rack="r", unschedulable=True),
    ]
    decisions = schedule_once(cluster, facts, 5.0) + schedule_once(cluster, [], 6.0)
    assert bound(decisions) == ["g-1"]
    assert cluster.state.pods["uid-g-1"].node not in (failed, cluster.state.pods["uid-g-0"].node)
    check_invariants(cluster)


def test_the_sentence_names_what_is_missing_and_where_it_was_closest() -> None:
    cluster = new_scheduler(factories.LEVELS)
    nodes: list[Fact] = [
        factories.node("a", rack="r1"),
        factories.node("b", rack="r1", unschedulable=True),
        factories.node("c", rack="r2", taints=(Taint("dedicated", "x", "NoSchedule"),)),
        factories.node("d", rack="r2", ready=False),
    ]
    decisions = schedule_once(
        cluster, [*nodes, factories.gang("g", 2, topology_required=RACK), *members("g", 2)], 0.0
    )
    assert told(decisions, "g") == (
        "needs 2 pods x 8 GPUs in one rack; best candidate r1 fits 1 of 2 "
        "(8 of 8 GPUs free on 1 node; 1 node: cordoned; 1 node: not ready; 1 node: taint dedicated)"
    )


def test_what_will_never_fit_is_said() -> None:
    """And not of what would, if a node came back."""
    cluster = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [
        *(factories.node(name, rack=f"r-{name}") for name in "ab"),
        *(factories.pod(f"run-{name}", 8, node=name, phase="Running") for name in "ab"),
    ]
    never = [factories.gang("g", 2, topology_required=RACK), *members("g", 2)]
    big = [factories.gang("h", 3), *members("h", 3)]
    decisions = schedule_once(cluster, [*facts, *never, *big], 0.0)
    assert "; can never start: even if empty, no rack fits more than 1" in told(decisions, "g")
    assert "; can never start: even if empty, the cluster fits 2" in told(decisions, "h")
    away = factories.node("c", rack="r-a", ready=False)
    decisions = schedule_once(cluster, [away, PodGone("uid-run-b")], 1.0)
    assert "even if empty" not in told(decisions, "g")


def test_the_scarce_resource_is_named() -> None:
    cluster = new_scheduler(factories.LEVELS)
    decisions = schedule_once(
        cluster,
        [
            factories.node("a", cpu=2500),
            factories.pod("q", 0, cpu=1000, node="a"),
            factories.pod("p", 1, cpu=2000),
        ],
        0.0,
    )
    assert told(decisions, "p") == (
        "needs 1 pod x 1 GPU; the cluster fits 0 of 1 "
        "(8 of 8 GPUs free on 1 node; 1 node has GPUs free and lacks 0.5 of 2 cpu); "
        "reserved: node a; start time unknown (q has no expected run time)"
    )


def test_what_is_not_honoured_is_refused_with_its_field() -> None:
    cluster = new_scheduler(factories.LEVELS)
    why = "spec.topologySpreadConstraints with DoNotSchedule is not supported yet"
    pod = factories.pod("p", 0, spec=factories.spec(0, unsupported=why))
    decisions = schedule_once(cluster, [factories.node("a"), pod], 0.0)
    assert not bound(decisions)
    assert told(decisions, "p") == why


def test_the_same_state_is_told_once() -> None:
    cluster = new_scheduler(factories.LEVELS)
    facts = [factories.node("a"), factories.gang("g", 2), *members("g", 2)]
    assert told(schedule_once(cluster, facts, 0.0), "g")
    assert not schedule_once(cluster, facts, 1.0)
    assert not schedule_once(cluster, [], 2.0)


def test_a_gang_that_waits_starts_as_soon_as_there_is_room() -> None:
    cluster = new_scheduler(factories.LEVELS)
    facts = [
        factories.node("a"),
        factories.pod("first", 8),
        factories.gang("g", 1),
        *members("g", 1),
    ]
    assert bound(schedule_once(cluster, facts, 0.0)) == ["first"]
    ended = factories.pod("first", 8, node="a", phase="Succeeded")
    assert bound(schedule_once(cluster, [ended], 1.0)) == ["g-0"]


def test_gated_pods_wait_for_their_gate() -> None:
    cluster = new_scheduler(factories.LEVELS)
    decisions = schedule_once(
        cluster, [factories.node("a"), factories.pod("p", 1, gated=True)], 0.0
    )
    assert told(decisions, "p") == "1 of 1 pods are held by scheduling gates"


def job(workers: int, servers: int) -> list[Fact]:
    return [
        *(factories.pod(f"w-{i}", 8, "job", task="worker") for i in range(workers)),
        *(factories.pod(f"s-{i}", 0, "job", task="ps") for i in range(servers)),
    ]


def test_each_role_has_its_minimum() -> None:
    cluster = new_scheduler(factories.LEVELS)
    group = factories.gang("job", 3, task_min=(("ps", 1), ("worker", 2)))
    nodes: list[Fact] = [factories.node("a"), factories.node("b")]
    decisions = schedule_once(cluster, [*nodes, group, *job(workers=3, servers=0)], 0.0)
    assert not bound(decisions)
    assert told(decisions, "job") == "task ps needs 1 more pod to start, 0 pending"
    # Two of three workers fit: with the server the minimum is there, though ranks would say else.
    decisions = schedule_once(cluster, job(workers=0, servers=1), 0.0)
    assert bound(decisions) == ["s-0", "w-0", "w-1"]
    assert "remaining pods: needs 1 pod x 8 GPUs" in told(decisions, "job")
    check_invariants(cluster)


def test_a_role_that_lost_its_minimum_is_not_whole() -> None:
    cluster = new_scheduler(factories.LEVELS)
    group = factories.gang("job", 2, task_min=(("ps", 1),))
    nodes: list[Fact] = [factories.node("a"), factories.node("b")]
    assert len(bound(schedule_once(cluster, [*nodes, group, *job(workers=2, servers=1)], 0.0))) == 3
    decisions = schedule_once(cluster, [PodGone("uid-s-0")], 1.0)
    assert [d.phase for d in decisions if isinstance(d, UpdateGangStatus)] == ["Pending"]
    assert bound(schedule_once(cluster, job(workers=0, servers=1), 2.0)) == ["s-0"]


def test_ranks_in_order_are_beside_each_other_and_learn_where_they_are() -> None:
    """Four ranks on two racks: the first two in one, the others in the other, and each is told."""
    nodes = [factories.node(f"n{i}", rack=f"r{i % 2}", block="b") for i in range(4)]
    cluster = new_scheduler(factories.LEVELS)
    facts = [*nodes, factories.gang("g", 4), *members("g", 4)]
    binds = sorted(d for d in schedule_once(cluster, facts, 0.0) if isinstance(d, Bind))
    racks = [dict(one.domains)[RACK] for one in binds]
    assert racks in (["r0", "r0", "r1", "r1"], ["r1", "r1", "r0", "r0"])
    assert dict(binds[0].domains)[DOMAINS] == f"b/{racks[0]}"
    assert {(one.node, dict(one.domains)[RACK]) for one in binds} == {
        (node.name, node.labels[RACK]) for node in nodes
    }
    moved = factories.node(binds[0].node, rack="r9")
    lone = factories.pod("lone", 8)
    gone = PodGone(binds[0].pod)
    [again] = [d for d in schedule_once(cluster, [moved, gone, lone], 1.0) if isinstance(d, Bind)]
    assert again.domains == ((RACK, "r9"), (DOMAINS, "r9"))


@pytest.mark.parametrize(("priority", "evicted"), [(5, ["old-0"]), (0, [])])
def test_surplus_members_evict_what_is_less_urgent(priority: int, evicted: list[str]) -> None:
    world = small_cluster.World(factories.node("a"), factories.node("b"))
    world.step(1.0, *small_cluster.job("old", 1))
    world.step(2.0, *small_cluster.job("elastic", 2, least=1, priority=priority, created=2.0))
    world.step(10.0)
    assert list(world.began) == ["old", "elastic"]
    assert world.evicted == evicted


def test_many_gangs_that_changed_are_accounted_in_slices_before_anything_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restart, or a change of queues: no cycle counts more than so many gangs, and none decides before."""
    assert cycle.ACCOUNTED_MOST <= 5_000
    monkeypatch.setattr(cycle, "ACCOUNTED_MOST", 50)
    gangs = 2 * cycle.ACCOUNTED_MOST + 1
    facts: list[Fact] = [QueueSeen("q"), factories.node("n", gpus=1)]
    facts += [
        factories.pod(f"p{number}", 1, queue="q", created=float(-number)) for number in range(gangs)
    ]
    made = new_scheduler(factories.LEVELS)
    for accounted in (1, 2):
        assert not schedule_once(made, facts, 0.0, lambda: False)
        assert len(made.queues.by_name["q"].gangs) == accounted * cycle.ACCOUNTED_MOST
        assert cycle.due(made, 0.0) == 0.0
        check_invariants(made)
        facts = []
    decisions = schedule_once(made, [], 0.0, lambda: False)
    assert [each.name for each in decisions if isinstance(each, Bind)] == [f"p{gangs - 1}"]
    check_invariants(made)


def test_many_statuses_are_written_over_several_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "STATUSES_MOST", 50)
    made, count = new_scheduler(factories.LEVELS), cycle.STATUSES_MOST + 10
    facts: list[Fact] = [factories.gang(f"g{number}", 1) for number in range(count)]
    facts += [factories.pod(f"g{number}-0", 1, f"g{number}") for number in range(count)]
    first = schedule_once(made, facts, 0.0)
    assert sum(isinstance(each, UpdateGangStatus) for each in first) == cycle.STATUSES_MOST
    assert cycle.due(made, 0.0) == 0.0
    second = schedule_once(made, [], 0.0)
    assert sum(isinstance(each, UpdateGangStatus) for each in second) == 10
    assert cycle.due(made, 0.0) is None


@pytest.mark.long
def test_a_start_does_not_wait_for_reasons() -> None:
    """One node is full, and many equal gangs wait. When a pod ends, the oldest starts in the next cycle, and the
    reasons of the others, with new numbers, follow in that cycle and the next ones."""
    made, count = new_scheduler(factories.LEVELS), cycle.REASONS_MOST + 12
    facts: list[Fact] = [factories.node("a", gpus=8)]
    facts += [
        factories.pod(f"r{number}", 4, node="a", phase="Running", started=0.0) for number in (0, 1)
    ]
    for number in range(count):
        facts.append(factories.gang(f"g{number}", 1, created=float(number)))
        facts.append(factories.pod(f"g{number}-0", 3, f"g{number}"))
    schedule_once(made, facts, 0.0)
    assert cycle.due(made, 0.0) is None
    first = schedule_once(made, [PodGone("uid-r0")], 1.0)
    assert [each.name for each in first if isinstance(each, Bind)] == ["g0-0"]
    told_now = {each.gang for each in first if isinstance(each, UpdateGangStatus)}
    assert "g0" in told_now
    assert len(told_now) < count
    assert cycle.due(made, 1.0) == 1.0
    second = schedule_once(made, [], 1.0)
    told_later = {each.gang for each in second if isinstance(each, UpdateGangStatus)}
    assert told_now | told_later == {f"g{number}" for number in range(count)}
    assert cycle.due(made, 1.0) is None
    assert all("1 of 8 GPUs free" in told(second, name) for name in told_later)
    check_invariants(made)


def test_a_gang_of_unlike_pods_in_a_cluster_without_nodes() -> None:
    cluster = new_scheduler(factories.LEVELS)
    pods = [factories.pod("g-0", 8, "g"), factories.pod("g-1", 0, "g")]
    decisions = schedule_once(cluster, [factories.gang("g", 2), *pods], 0.0)
    assert told(decisions, "g") == "needs 1 pod x 8 GPUs and 1 pod; the cluster has no nodes"

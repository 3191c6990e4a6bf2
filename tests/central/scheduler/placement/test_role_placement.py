"""Roles that want to share nodes, or not to: against trying every way, and as a story."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import PodGone, PodSeen, Roles
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import PlacementRequest, RolePreferences, fit
from central.scheduler.placement.role_placement import (
    RolePlacementProblem,
    Vector,
    improved,
    searched,
)
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.effort import ALL_SEEDS, seeds

TF = Roles(near=(("ps", "worker"),), apart=(("ps", "ps"),))


def every_plan(problem: RolePlacementProblem) -> Iterator[list[Vector]]:
    def rest(place: int, left: Vector) -> Iterator[list[Vector]]:
        if place == len(problem.free):
            if not any(left):
                yield []
            return
        for vector in product(*(range(count + 1) for count in left)):
            if problem.fits(place, vector):
                after = tuple(a - b for a, b in zip(left, vector, strict=True))
                yield from ([vector, *more] for more in rest(place + 1, after))

    return rest(0, problem.counts)


def judged(
    roles: RolePreferences, plan: Sequence[Vector], fixed: Sequence[Vector]
) -> tuple[int, ...]:
    """The harm as the module's first lines say it, counted pod by pod."""
    pods = [
        (node, role)
        for node, both in enumerate(zip(plan, fixed, strict=True))
        for role, (new, old) in enumerate(zip(*both, strict=True))
        for _ in range(new + old)
    ]
    found = Counter[str]()
    for index, (node, role) in enumerate(pods):
        for other, another in pods[:index]:
            pair = (min(role, another), max(role, another))
            kind = "same" if role == another else "two"
            found[f"together {kind}"] += pair in roles.anti_affinity and node == other
            found[f"remote {kind}"] += pair in roles.affinity and node != other
    return (
        found["together same"],
        found["remote two"],
        found["remote same"],
        found["together two"],
    )


def random_problem(dice: random.Random) -> tuple[RolePreferences, RolePlacementProblem]:
    pairs = [(0, 0), (0, 1), (1, 1)]
    counts = [dice.randint(1, 3), dice.randint(1, 4)]
    roles = RolePreferences(
        tuple((factories.spec(1), count) for count in counts),
        affinity=tuple(dice.sample(pairs, dice.randint(0, 2))),
        anti_affinity=tuple(dice.sample(pairs, dice.randint(0, 2))),
    )
    nodes = dice.randint(2, 4)
    free = [(dice.randint(0, 5), dice.randint(0, 8)) for _ in range(nodes)]
    asks = [(1, dice.randint(0, 2)), (dice.randint(1, 2), 1)]
    room = [(dice.randint(1, 4), dice.randint(1, 4)) for _ in range(nodes)]
    fixed = [(dice.randint(0, 1), 0) for _ in range(nodes)] if dice.random() < 0.3 else []
    return roles, RolePlacementProblem(roles, free, room, asks, fixed)


def test_few_pods_sit_as_well_as_they_can() -> None:
    seen = Counter[str]()
    for seed in seeds(250):
        dice = random.Random(seed)
        roles, problem = random_problem(dice)
        plans = list(every_plan(problem))
        if not plans:
            continue
        start = dice.choice(plans)
        plan, certain = searched(problem, improved(problem, list(start)))
        assert certain
        best = min(judged(roles, plan, problem.existing) for plan in plans)
        assert judged(roles, plan, problem.existing) == best, f"seed {seed}"
        least = min(map(problem.total_cost, plans))
        assert problem.total_cost(plan) == least, f"seed {seed}"
        from_worst, _ = searched(problem, max(plans, key=problem.total_cost))
        assert problem.total_cost(from_worst) == least, f"seed {seed}, without moves before it"
        better = judged(roles, start, problem.existing) > best
        seen["better" if better else "as good"] += 1
    assert not ALL_SEEDS or min(seen.values()) > 40


def test_exchanges_alone_come_close() -> None:
    """With many pods nothing more is done; here it could be checked."""
    optimal = total = 0
    for seed in seeds(250):
        dice = random.Random(seed)
        roles, problem = random_problem(dice)
        plans = list(every_plan(problem))
        if plans:
            total += 1
            plan = improved(problem, list(dice.choice(plans)))
            best = min(judged(roles, plan, problem.existing) for plan in plans)
            optimal += judged(roles, plan, problem.existing) == best
    assert not ALL_SEEDS or optimal / total > 0.85


# --- through the snapshot --------------------------------------------------------------


def rack(*sizes: int) -> Snapshot:
    snapshot = Snapshot(factories.LEVELS)
    for place, size in enumerate(sizes):
        snapshot.put_node(factories.node(f"n{place}", rack="r", gpus=size))
    return snapshot


def sits(snapshot: Snapshot, roles: RolePreferences, required: str = "") -> list[Vector]:
    """By node: how many of each role; both roles' pods are alike."""
    count = sum(number for _, number in roles.pods)
    seats = list(
        fit(Draft(snapshot), PlacementRequest(((factories.spec(1), count),), required, roles=roles))
    )
    nodes: dict[int, list[int]] = {}
    left = [number for _, number in roles.pods]
    for seat in seats:
        for _ in range(seat.pods):
            role = next(role for role, number in enumerate(left) if number)
            left[role] -= 1
            nodes.setdefault(seat.row, [0] * len(left))[role] += 1
    return sorted(tuple(vector) for vector in nodes.values())


def tf(servers: int, workers: int) -> RolePreferences:
    roles = ((factories.spec(1), servers), (factories.spec(1), workers))
    return RolePreferences(roles, affinity=((0, 1),), anti_affinity=((0, 0),))


def test_servers_apart_each_with_its_workers() -> None:
    """The figure that was published: two servers and four workers on three nodes of three places."""
    assert sits(rack(3, 3, 3), tf(2, 4)) == [(1, 2), (1, 2)]


def test_two_nodes_though_one_has_room_for_all() -> None:
    assert sits(rack(8, 8), tf(2, 4)) == [(1, 2), (1, 2)]


def test_one_node_where_nobody_wants_to_be_apart() -> None:
    roles = RolePreferences(tf(2, 4).pods, affinity=((0, 1),))
    assert sits(rack(8, 8), roles) == [(2, 4)]


def test_a_wish_never_stands_in_the_way() -> None:
    assert sits(rack(6), tf(2, 4)) == [(2, 4)]
    assert sits(rack(8, 8), tf(2, 4), "node") == [(2, 4)]


def test_many_pods_in_time() -> None:
    found = sits(rack(*[8] * 16), tf(16, 112))
    assert found == [(1, 7)] * 16


def test_the_rack_where_servers_can_be_apart() -> None:
    snapshot = Snapshot(factories.LEVELS)
    snapshot.put_node(factories.node("a", rack="a", gpus=6))
    for name in "bc":
        snapshot.put_node(factories.node(name, rack="b", gpus=6))
    assert sits(snapshot, tf(2, 4), RACK) == [(1, 2), (1, 2)]


# --- from PodGroup to bindings -----------------------------------------------------------


def member(task: str, rank: int) -> PodSeen:
    return factories.pod(f"{task}-{rank}", 1, "g", task=task)


def where(cluster: Scheduler) -> dict[str, str]:
    return {pod.seen.name: pod.node for pod in cluster.state.pods.values()}


@pytest.mark.parametrize("roles", [TF, None])
def test_a_tensorflow_job(roles: Roles | None) -> None:
    cluster = new_scheduler(factories.LEVELS)
    nodes = [factories.node(name, rack="r", gpus=3) for name in "abc"]
    pods = [member("ps", i) for i in range(2)] + [member("worker", i) for i in range(4)]
    decisions = schedule_once(cluster, [*nodes, factories.gang("g", 6, roles=roles), *pods], 0.0)
    assert sum(isinstance(d, Bind) for d in decisions) == 6
    at = where(cluster)
    apart = at["ps-0"] != at["ps-1"]
    local = sum(at[f"ps-{p}"] == at[f"worker-{w}"] for p in range(2) for w in range(4))
    assert (apart, local) == ((True, 4) if roles else (False, 2))
    check_invariants(cluster)


def test_roles_count_on_clusters_that_sum_nic_limits_elsewhere() -> None:
    """Limits of a node's NICs concern gangs that ask for NICs, and this one asks for none."""
    cluster = new_scheduler(factories.LEVELS)
    nodes = [factories.node(name, rack="r", gpus=3) for name in "abc"]
    limited = factories.node("d", gpus=1, unschedulable=True)
    report = factories.report("d", factories.carded(factories.topology(1), 40))
    pods = [member("ps", i) for i in range(2)] + [member("worker", i) for i in range(4)]
    schedule_once(cluster, [*nodes, limited, report, factories.gang("g", 6, roles=TF), *pods], 0.0)
    assert cluster.state.nodes["d"].reported.nics is not None
    at = where(cluster)
    assert at["ps-0"] != at["ps-1"]
    assert sum(at[f"ps-{p}"] == at[f"worker-{w}"] for p in range(2) for w in range(4)) == 4


def test_a_lost_worker_comes_back_to_the_server_with_fewer() -> None:
    cluster = new_scheduler(factories.LEVELS)
    nodes = [factories.node(name, rack="r", gpus=4) for name in "abc"]
    pods = [member("ps", i) for i in range(2)] + [member("worker", i) for i in range(4)]
    schedule_once(cluster, [*nodes, factories.gang("g", 6, roles=TF), *pods], 0.0)
    home = where(cluster)["worker-3"]
    schedule_once(
        cluster, [PodGone("uid-worker-3"), replace(member("worker", 3), uid="again")], 1.0
    )
    assert where(cluster)["worker-3"] == home

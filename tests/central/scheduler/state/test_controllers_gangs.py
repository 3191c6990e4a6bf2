"""Gangs of the controllers that people run: their pods start together, by what their objects say."""

from copy import deepcopy

import pytest

from central.controllers.composite import new_scheduler
from central.kube.decode import gang_rules
from central.kube.decode.decoder import Decoder
from central.kube.transport import watch
from central.model.decisions import Bind, Decision, UpdateGangStatus
from central.model.facts import Fact, GangGone, PodGone
from central.model.json_types import Json
from central.scheduler import rebuild
from central.scheduler.cycle import due, schedule_once
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.owner_gangs import OBJECT_HOLD_S
from central.server.queries import explain
from protos import names
from tests.central import factories
from tests.central.kube import controller_fixtures as made
from tests.central.scheduler.invariants import check_invariants

READER = Decoder(("lockstep",), factories.LEVELS)


def the_object(raw: Json) -> Fact:
    [rule] = [one for one in READER.rules if one.resource.kind == raw["kind"]]
    return READER.controllers_gang(rule, raw)


def gone(raw: Json) -> Fact:
    [rule] = [one for one in READER.rules if one.resource.kind == raw["kind"]]
    return gang_rules.object_gone(rule, raw)


def the_pods(raws: list[Json]) -> list[Fact]:
    return [READER.pod(raw) for raw in raws]


def nodes(count: int, prefix: str = "n") -> list[Fact]:
    return [factories.node(f"{prefix}{i}", rack="r1") for i in range(count)]


def bound(decisions: list[Decision]) -> list[str]:
    return sorted(d.name for d in decisions if isinstance(d, Bind))


def step(scheduler: Scheduler, facts: list[Fact], now: float) -> list[str]:
    decisions = schedule_once(scheduler, facts, now)
    check_invariants(scheduler)
    assert not [d for d in decisions if isinstance(d, UpdateGangStatus) and d.has_object]
    return bound(decisions)


def gpu_pods(raws: list[Json]) -> int:
    return sum(names.GPU in raw["spec"]["containers"][0]["resources"]["limits"] for raw in raws)


@pytest.mark.parametrize("kind", made.PLAYED)
def test_no_pod_starts_before_all_can(kind: str) -> None:
    played = made.PLAYED[kind]
    least = gpu_pods(played.pods)
    scheduler = new_scheduler(factories.LEVELS)
    facts = [the_object(played.object), *the_pods(played.pods)]
    assert step(scheduler, [*nodes(least - 1), *facts], 0.0) == []
    assert len(step(scheduler, nodes(1, "more"), 1.0)) == len(played.pods)
    found = explain(scheduler, made.SPACE, played.gang)
    assert found is not None
    assert found.min_member == played.start


@pytest.mark.parametrize("kind", made.PLAYED)
def test_no_pod_starts_before_the_last_exists(kind: str) -> None:
    played = made.PLAYED[kind]
    scheduler = new_scheduler(factories.LEVELS)
    facts = [the_object(played.object), *the_pods(played.pods[:-1])]
    assert step(scheduler, [*nodes(8), *facts], 0.0) == []
    assert len(step(scheduler, the_pods(played.pods[-1:]), 1.0)) == len(played.pods)


def test_cpu_workers_alone_are_no_start_of_a_ray_cluster() -> None:
    """Eight CPU workers and the head reach a minimum of nine pods."""
    scheduler = new_scheduler(factories.LEVELS)
    ray = made.ray_pods()
    more = [made.ray_pod("cpu", 8)]
    facts = [the_object(made.raycluster()), *the_pods(ray[:-1]), *the_pods(more)]
    assert step(scheduler, [*nodes(8), *facts], 0.0) == []
    found = explain(scheduler, made.SPACE, "tune")
    assert found is not None
    assert found.reason == "task gpu needs 1 more pod to start, 0 pending"


def test_each_replica_of_a_leaderworkerset_is_a_gang() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    first, second = (the_pods(made.leaderworkerset_pods(replica)) for replica in range(2))
    facts = [*nodes(3), the_object(made.leaderworkerset()), *first, *second]
    assert step(scheduler, facts, 0.0) == ["serve-0", "serve-0-1"]
    assert step(scheduler, nodes(1, "more"), 1.0) == ["serve-1", "serve-1-1"]


def test_a_change_of_the_object_reaches_its_replicas() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    pods = the_pods(made.leaderworkerset_pods(0, 3))
    facts = [*nodes(2), the_object(made.leaderworkerset(3)), *pods]
    assert step(scheduler, facts, 0.0) == []
    assert len(step(scheduler, [the_object(made.leaderworkerset(2))], 1.0)) == 2


def test_what_is_gone_leaves_nothing_behind() -> None:
    for played in made.PLAYED.values():
        scheduler = new_scheduler(factories.LEVELS)
        step(scheduler, [the_object(played.object), *the_pods(played.pods)], 0.0)
        step(scheduler, [PodGone(raw["metadata"]["uid"]) for raw in played.pods], 1.0)
        step(scheduler, [gone(played.object)], 2.0)
        state = scheduler.state
        assert not state.gangs
        assert not state.owners.replicated.objects
        assert not state.owners.replicated.replicas_of(made.SPACE, "leaderworkerset/serve")
        assert not state.owners.declared


def test_pods_wait_a_moment_for_their_object() -> None:
    """Two watches have no order."""
    played = made.PLAYED["RayCluster"]
    scheduler = new_scheduler(factories.LEVELS)
    assert step(scheduler, [*nodes(1), *the_pods(played.pods[:-1])], 10.0) == []
    assert due(scheduler, 10.0) == pytest.approx(10.0 + OBJECT_HOLD_S)
    assert step(scheduler, [the_object(played.object)], 10.5) == []
    assert len(step(scheduler, the_pods(played.pods[-1:]), 11.0)) == len(played.pods)


def test_pods_wait_longer_than_a_new_kind_takes_to_be_seen() -> None:
    """Whoever installs a controller and uses it at once gets a gang, too."""
    assert OBJECT_HOLD_S > watch.GANGS_RECHECK_S + 1.0


def test_pods_whose_object_cannot_be_read_start_one_by_one() -> None:
    played = made.PLAYED["RayCluster"]
    scheduler = new_scheduler(factories.LEVELS)
    assert step(scheduler, [*nodes(1), *the_pods(played.pods[:3])], 10.0) == []
    assert len(step(scheduler, [], 10.0 + OBJECT_HOLD_S)) == 3


def test_without_its_object_a_gang_keeps_no_minimum() -> None:
    played = made.PLAYED["PyTorchJob"]
    scheduler = new_scheduler(factories.LEVELS)
    facts = [the_object(played.object), *the_pods(played.pods[:1])]
    assert step(scheduler, [*nodes(1), *facts], 0.0) == []
    assert step(scheduler, [GangGone(made.SPACE, "pytorchjob/bert")], 1.0) == ["bert-master-0"]


def test_a_minimum_on_the_pods_goes_before_that_of_the_object() -> None:
    played = deepcopy(made.PLAYED["RayCluster"])
    for raw in played.pods:
        raw["metadata"]["annotations"][names.GANG_MIN] = "2"
    scheduler = new_scheduler(factories.LEVELS)
    facts = [the_object(played.object), *the_pods(played.pods[:1])]
    assert step(scheduler, [*nodes(1), *facts], 0.0) == []
    assert len(step(scheduler, the_pods(played.pods[1:2]), 1.0)) == 2


def test_a_state_that_is_built_again_knows_the_objects() -> None:
    for played in made.PLAYED.values():
        scheduler = new_scheduler(factories.LEVELS)
        step(scheduler, [the_object(played.object), *the_pods(played.pods[:-1])], 0.0)
        rebuild.rebuild(scheduler)
        assert step(scheduler, nodes(8), 1.0) == []
        assert len(step(scheduler, the_pods(played.pods[-1:]), 2.0)) == len(played.pods)


def test_an_object_without_pods_of_ours_is_left_alone() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    facts = [*nodes(1), *(the_object(played.object) for played in made.PLAYED.values())]
    assert not schedule_once(scheduler, facts, 0.0)
    check_invariants(scheduler)


def test_the_levels_of_a_set_and_of_the_replicas_of_a_role() -> None:
    """Two Jobs of two workers: each on one node, all of them with the driver in one block."""
    notes = {names.TOPOLOGY_REQUIRED: names.BLOCK, names.ROLE_TOPOLOGY: "workers/each=node"}
    jobs = [[made.jobset_pod("train", "workers", job, i, 4) for i in range(2)] for job in range(2)]
    pods = the_pods([made.jobset_pod("train", "driver", 0, 0, gpus=0), *jobs[0], *jobs[1]])
    free = [("a", "b1", 8), ("b", "b2", 8), ("c", "b2", 4), ("d", "b2", 4)]
    some = [factories.node(name, block=block, gpus=gpus) for name, block, gpus in free]
    last = factories.node("e", block="b2")

    def placed(chosen: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """Who is bound at first, and where all are after one more node."""
        scheduler = new_scheduler(factories.LEVELS)
        facts = [*some, the_object(made.jobset(annotations=chosen)), *pods]
        decisions = schedule_once(scheduler, facts, 0.0)
        first = bound(decisions)
        decisions += schedule_once(scheduler, [last], 1.0)
        return first, {d.name: d.node for d in decisions if isinstance(d, Bind)}

    for key in notes:  # either level alone leaves a placement on the first nodes
        assert len(placed({key: notes[key]})[0]) == 5
    first, nodes_of = placed(notes)
    assert first == []
    together = [{nodes_of[raw["metadata"]["name"]] for raw in job} for job in jobs]
    assert sorted(map(sorted, together)) == [["b"], ["e"]]

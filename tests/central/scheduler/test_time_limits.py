"""A gang ends by the clock: a Job is terminated, another gang is evicted and not started again."""

from dataclasses import replace
from typing import Any

from central.model.decisions import TIME_LIMIT, Evict
from central.model.facts import Fact, GangGone, PodGone
from central.scheduler import pending_cause
from central.scheduler.cycle import due
from protos import names
from tests.central import factories
from tests.central.controllers.job import job_api
from tests.central.scheduler.small_cluster import World, job

LIMIT_S = 7200.0


def limited(**fields: Any) -> World:
    world = World(factories.node("n0"), factories.node("n1"))
    world.step(1.0, *job("g", 2, time_limit_s=LIMIT_S, **fields))
    return world


def created_again(world: World) -> list[Fact]:
    old = [seen for seen in world.running.values() if seen.gang == "g"]
    gone: list[Fact] = [PodGone(seen.uid) for seen in old]
    world.leaving.clear()
    world.running.clear()
    return [
        *gone,
        *(
            replace(seen, uid=f"{seen.uid}'", node="", phase="Pending", deleting=False)
            for seen in old
        ),
    ]


def test_a_gang_is_evicted_at_its_limit_and_not_started_again() -> None:
    world = limited()
    assert due(world.cluster, 2.0) == 1.0 + LIMIT_S
    world.step(LIMIT_S)
    assert not world.evicted
    world.step(1.0 + LIMIT_S)
    assert sorted(world.evicted) == ["g-0", "g-1"]
    assert {each.cause for each in world.decisions if isinstance(each, Evict)} == {TIME_LIMIT}
    assert world.whys[0] == "gang g reached its time limit of 2 h 00 min (lockstep.dev/time-limit)"
    assert world.step(2.0 + LIMIT_S, *created_again(world)) == []
    gang = world.cluster.state.gangs["ns", "g", True]
    assert world.told["g"] == gang.attempt.reason
    assert gang.attempt.reason.endswith("; create its PodGroup again to run it again")
    assert pending_cause.cause_of(world.cluster, gang) == "invalid"
    assert due(world.cluster, 3.0 + LIMIT_S) is None
    assert world.step(10 * LIMIT_S, factories.node("n2")) == []
    new = replace(factories.gang("g", 2), uid="new", time_limit_s=LIMIT_S)
    assert len(world.step(10 * LIMIT_S + 1.0, new)) == 2
    world.step(11 * LIMIT_S)
    assert len(world.evicted) == 2
    world.step(11 * LIMIT_S + 1.0)
    assert len(world.evicted) == 4, "the new run has the whole time"


def test_the_start_is_that_of_the_first_pod_as_its_kubelet_says() -> None:
    world = limited()
    started = [replace(each, started=1000.0) for each in world.running.values()]
    world.step(1001.0, *started)
    assert due(world.cluster, 1001.0) == 1000.0 + LIMIT_S


def test_nothing_is_kept_of_a_gang_that_is_gone() -> None:
    world = limited()
    world.step(1.0 + LIMIT_S)
    unready = world.cluster.elastic.unready
    assert unready.failed
    world.step(2.0 + LIMIT_S, *(PodGone(uid) for uid in [*world.leaving]), GangGone("ns", "g"))
    assert not unready.failed


def test_a_job_is_terminated() -> None:
    api = job_api.Api(nodes=1)
    raw = job_api.job({"worker": 2})
    raw["metadata"].setdefault("annotations", {})[names.TIME_LIMIT] = "1h"
    api.apply(raw)
    api.settle()
    began = api.now
    while api.now < began + 3500.0:
        api.step(60.0)
    assert api.status()["state"]["phase"] == "Running"
    while api.now < began + 3700.0:
        api.step(10.0)
    state = api.status()["state"]
    assert (state["phase"], state["reason"]) == ("Terminated", "TimeLimit")
    assert state["message"] == "the Job reached its time limit of 60 min (lockstep.dev/time-limit)"

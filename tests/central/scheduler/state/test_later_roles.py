"""Pods that their controller creates when others run or have ended start together when they come."""

from copy import deepcopy

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, PodGone
from central.model.json_types import Json
from central.scheduler.scheduler import Scheduler
from central.server.queries import explain
from protos import names
from tests.central import factories
from tests.central.kube import controller_fixtures as made
from tests.central.scheduler.state.test_controllers_gangs import nodes, step, the_object, the_pods


def replicated(name: str, pods: int, *after: str) -> Json:
    inside = {"parallelism": pods, "completions": pods}
    depends = [{"name": each, "status": "Complete"} for each in after]
    return {"name": name, "template": {"spec": inside}, "dependsOn": depends}


def jobset(*jobs: Json, annotations: dict[str, str] | None = None) -> Fact:
    return the_object(made.jobset({"replicatedJobs": list(jobs)}, annotations))


def pods(role: str, count: int, gpus: int = 8) -> list[Json]:
    return [made.jobset_pod("train", role, 0, index, gpus) for index in range(count)]


def with_status(raws: list[Json], node: str, phase: str) -> list[Fact]:
    found = deepcopy(raws)
    for raw in found:
        raw["spec"]["nodeName"] = node
        raw["status"] = {"phase": phase}
    return the_pods(found)


def gone(raws: list[Json]) -> list[Fact]:
    return [PodGone(raw["metadata"]["uid"]) for raw in raws]


def reason(scheduler: Scheduler, gang: str = "jobset/train") -> str:
    found = explain(scheduler, made.SPACE, gang)
    assert found is not None
    return found.reason


class Steps:
    """A scheduler, and a clock that goes on by a second with each step."""

    def __init__(self, *facts: Fact) -> None:
        self.scheduler = new_scheduler(factories.LEVELS)
        self.now = 0.0
        self(*facts)

    def __call__(self, *facts: Fact) -> list[str]:
        self.now += 1.0
        return step(self.scheduler, list(facts), self.now)


INIT, NODES = pods("init", 1, 0), pods("node", 2)
TUNING = jobset(replicated("init", 1), replicated("node", 2, "init"))


def test_a_step_starts_whole_after_the_one_before() -> None:
    steps = Steps(*nodes(1), TUNING)
    assert len(steps(*the_pods(INIT))) == 1
    steps(*with_status(INIT, "n0", "Succeeded"))
    assert steps(*the_pods(NODES[:1])) == []
    assert "task node needs 2 more pods to start, 1 pending" in reason(steps.scheduler)
    assert steps(*the_pods(NODES[1:])) == []
    assert "1 of 3 pods are bound; needs 2 pods x 8 GPUs" in reason(steps.scheduler)
    assert len(steps(*nodes(1, "more"))) == 2
    assert reason(steps.scheduler).startswith("3 of 3 pods placed")


def test_steps_in_order_start_whole_one_after_the_other() -> None:
    order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    jobs = [replicated(name, 2) for name in ("first", "second", "third")]
    steps = Steps(*nodes(3), the_object(made.jobset({"replicatedJobs": jobs} | order)))
    for role in ("first", "second", "third"):
        assert steps(*the_pods(pods(role, 1, 4))) == []
        assert len(steps(*the_pods(pods(role, 2, 4)[1:]))) == 2


def test_a_lost_pod_is_replaced_without_the_steps_before() -> None:
    """Their pods may be deleted once they have ended, by a time to live."""
    evaluation = pods("eval", 2)
    jobs = [replicated("init", 1), replicated("node", 2, "init"), replicated("eval", 2, "node")]
    steps = Steps(*nodes(2), jobset(*jobs), *the_pods(INIT))
    steps(*with_status(INIT, "n0", "Succeeded"), *the_pods(NODES))
    steps(*with_status(NODES, "n0", "Succeeded"), *gone(INIT))
    assert len(steps(*the_pods(evaluation))) == 2
    steps(*with_status(evaluation[:1], "n0", "Running"), *gone(NODES))
    assert len(steps(*gone(evaluation[1:]), *the_pods(evaluation[1:]))) == 1


def test_a_step_beside_one_that_has_come_starts_whole() -> None:
    """Only the steps that one depends on are done."""
    other = pods("other", 2)
    jobs = [replicated("init", 1), replicated("other", 2, "init"), replicated("node", 2, "init")]
    steps = Steps(*nodes(4), jobset(*jobs), *the_pods(INIT))
    steps(*with_status(INIT, "n0", "Succeeded"), *the_pods(NODES))
    assert steps(*the_pods(other[:1])) == []
    assert len(steps(*the_pods(other[1:]))) == 2


def test_after_a_restart_the_first_step_is_the_start_again() -> None:
    """Also while pods of the attempt before are still leaving."""
    steps = Steps(*nodes(2), TUNING, *the_pods(INIT))
    steps(*with_status(INIT, "n0", "Succeeded"), *the_pods(NODES))
    leaving = deepcopy(NODES)
    for raw in leaving:
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    again = deepcopy(INIT)
    again[0]["metadata"] |= {"name": "again", "uid": "uid-again"}
    assert steps(*gone(INIT), *with_status(leaving, "n0", "Running"), *the_pods(again)) == ["again"]


def test_the_level_of_a_step_holds_for_it_alone() -> None:
    notes = {names.ROLE_TOPOLOGY: f"node={names.RACK}"}
    jobs = (replicated("init", 1), replicated("node", 2, "init"))
    some = [factories.node(name, rack=name) for name in ("r1", "r2")]
    steps = Steps(*some, jobset(*jobs, annotations=notes), *the_pods(INIT))
    assert steps(*with_status(INIT, "r1", "Succeeded"), *the_pods(NODES)) == []
    assert len(steps(factories.node("n3", rack="r2"))) == 2


def test_the_workers_of_a_leader_that_starts_alone_start_together() -> None:
    """Of each replica."""
    first, *workers = made.leaderworkerset_pods(0, 3)
    steps = Steps(*nodes(2), the_object(made.leaderworkerset(3, "LeaderReady")))
    assert steps(*the_pods([first])) == ["serve-0"]
    steps(*with_status([first], "n0", "Running"))
    assert steps(*the_pods(workers[:1])) == []
    assert steps(*the_pods(workers[1:])) == []
    assert "2 pods x 8 GPUs; the cluster fits 1 of 2" in reason(
        steps.scheduler, "leaderworkerset/serve/0"
    )
    assert steps(*the_pods(made.leaderworkerset_pods(1, 3)[:1])) == ["serve-1"]
    assert len(steps(*nodes(2, "more"))) == 2

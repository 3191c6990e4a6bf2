"""Spark, Argo Workflows and StatefulSets: what starts at once, what later, and what is kept for those who come."""

from central.controllers.composite import new_scheduler
from central.kube.decode.decoder import Decoder
from central.model.decisions import Bind
from central.model.facts import Fact
from central.model.json_types import Json
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.kube import stepwise_fixtures as made
from tests.central.kube.controller_fixtures import pod
from tests.central.scheduler.invariants import check_invariants

READER = Decoder(("lockstep", "volcano"), factories.LEVELS)


def pods(raws: list[Json]) -> list[Fact]:
    return [READER.pod(raw) for raw in raws]


def step(scheduler: Scheduler, facts: list[Fact], now: float) -> list[str]:
    decisions = schedule_once(scheduler, facts, now)
    check_invariants(scheduler)
    return sorted(each.name for each in decisions if isinstance(each, Bind))


def nodes(count: int, cpu: int = 64_000) -> list[Fact]:
    return [factories.node(f"n{number}", cpu=cpu) for number in range(count)]


def test_a_spark_driver_starts_where_its_executors_will_fit() -> None:
    """Three executors of two processors and their driver of one; a node has four."""
    scheduler = new_scheduler(factories.LEVELS)
    group = READER.gang(made.spark_group(3, 2))
    assert step(scheduler, [*nodes(1, 4_000), group, *pods([made.spark_driver()])], 0.0) == []
    more: list[Fact] = [factories.node("more", cpu=4_000)]
    assert step(scheduler, more, 1.0) == ["pi-driver"]


def test_what_spark_executors_need_is_kept_until_they_come() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    facts = [*nodes(2, 4_000), READER.gang(made.spark_group(3, 2)), *pods([made.spark_driver()])]
    assert step(scheduler, facts, 0.0) == ["pi-driver"]
    stranger = pod("stranger", ("Job", "other"), {}, gpus=0)
    stranger["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    assert step(scheduler, pods([stranger]), 1.0) == []
    executors = made.spark_executors(3, 2)
    assert step(scheduler, pods(executors), 2.0) == ["pi-exec-1", "pi-exec-2", "pi-exec-3"]


def test_executors_start_one_by_one() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    facts = [*nodes(2, 4_000), READER.gang(made.spark_group(3, 2)), *pods([made.spark_driver()])]
    step(scheduler, facts, 0.0)
    first, *others = made.spark_executors(3, 2)
    assert step(scheduler, pods([first]), 1.0) == ["pi-exec-1"]
    assert step(scheduler, pods(others), 2.0) == ["pi-exec-2", "pi-exec-3"]


def test_steps_of_a_workflow_start_alone() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    steps = pods(made.argo_steps("train", 3, gang=False))
    assert len(step(scheduler, [*nodes(2), *steps], 0.0)) == 2


def test_parallel_steps_of_a_workflow_with_a_label_start_together() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    steps = pods(made.argo_steps("train", 3, gang=True))
    assert step(scheduler, [*nodes(2), *steps], 0.0) == []
    more: list[Fact] = [factories.node("more")]
    assert len(step(scheduler, more, 1.0)) == 3


def test_a_statefulset_of_an_inference_server() -> None:
    """It says a minimum of two of its three; the third comes when there is a node."""
    scheduler = new_scheduler(factories.LEVELS)
    owner = READER.owner("StatefulSet", made.statefulset(2))
    facts = [*nodes(1), owner, *pods(made.statefulset_pods(3))]
    assert step(scheduler, facts, 0.0) == []
    second: list[Fact] = [factories.node("second")]
    assert step(scheduler, second, 1.0) == ["vllm-0", "vllm-1"]
    third: list[Fact] = [factories.node("third")]
    assert step(scheduler, third, 2.0) == ["vllm-2"]

"""Gangs in queues, and what the scheduler did with them: for tests of the queues."""

from collections.abc import Sequence
from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, UpdateGangStatus
from central.model.defaults import USAGE_HALF_LIFE_S
from central.model.facts import Fact, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants


def queue(name: str, **fields: object) -> QueueSeen:
    """capability=8 and the like are of GPUs."""
    amounts = {
        key: ((GPU, value),) if isinstance(value, int) else value
        for key, value in fields.items()
        if key in ("capability", "guarantee", "deserved")
    }
    return QueueSeen(name, **{**fields, **amounts})  # type: ignore[arg-type]  # a test's shorthand


def gang(
    name: str, queue: str = "default", pods: int = 1, gpus: int = 1, **more: object
) -> list[Fact]:
    group = factories.gang(name, pods, queue=queue, **more)
    return [group, *(factories.pod(f"{name}-{rank}", gpus, name) for rank in range(pods))]


def members(
    name: str,
    gpus: int,
    nodes: Sequence[int],
    *,
    created: float,
    priority: int,
    namespace: str,
    app: str = "",
) -> list[Fact]:
    """Pods of a gang, one for each of the nodes; -1: it is pending. app: a label."""
    found: list[Fact] = []
    for rank, node in enumerate(nodes):
        labels = (("app", app),) if app else ()
        pod = factories.pod(
            f"{name}-{rank}", gpus, name, created=created, priority=priority, labels=labels
        )
        pod = replace(pod, namespace=namespace)
        found.append(replace(pod, node=f"n{node}", phase="Running") if node >= 0 else pod)
    return found


def gangs(number: int, queue: str, pods: int = 1, gpus: int = 1) -> list[Fact]:
    return [
        fact
        for n in range(number)
        for fact in gang(f"{queue}{n:03}", queue, pods, gpus, created=float(n))
    ]


def bound(decisions: list[Decision]) -> list[str]:
    """The gangs in the order in which they were placed."""
    names = [d.name.rpartition("-")[0] for d in decisions if isinstance(d, Bind)]
    return list(dict.fromkeys(names))


def waits(decisions: list[Decision]) -> dict[str, str]:
    return {
        d.gang: d.reason
        for d in decisions
        if isinstance(d, UpdateGangStatus) and d.phase == "Pending"
    }


def nodes(gpus: int) -> list[Fact]:
    return [factories.node(f"n{i}") for i in range(gpus // 8)]


def played(
    *facts: Fact, half_life_s: float = USAGE_HALF_LIFE_S
) -> tuple[Scheduler, list[Decision]]:
    scheduler = new_scheduler(factories.LEVELS, half_life_s=half_life_s)
    decisions = schedule_once(scheduler, facts, 0.0)
    check_invariants(scheduler)
    return scheduler, decisions


def used(scheduler: Scheduler, name: str) -> int:
    return scheduler.queues.by_name[name].used.get(GPU, 0)

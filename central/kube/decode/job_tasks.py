"""A Job's tasks and policies as raw JSON -> values. Pure; raises Unreadable with the field."""

import re
from dataclasses import replace
from typing import Any

from central.kube.decode import podspec
from central.kube.decode.quantities import NotAQuantity, seconds
from central.kube.errors import BROKEN, Unreadable, text, what
from central.model.jobspec import (
    ACTIONS,
    ANY,
    EVENTS,
    NO_LIMIT,
    LifecyclePolicy,
    Partition,
    TaskSpec,
)
from central.model.json_types import Json

DEFAULT_RETRY = 3
MOST = 2**31 - 1
TOPOLOGY_POLICIES = ("", "none", "best-effort", "restricted", "single-numa-node")
UNALIGNED = (
    "can't be promised: a pod's processors are for its kubelet to choose, by a policy that nobody tells "
    "the centre; leave it out (GPUs are chosen with regard to NUMA nodes anyway)"
)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def read(raw: Any) -> tuple[TaskSpec, ...]:
    if not isinstance(raw, list) or not raw:
        raise Unreadable("spec.tasks: a Job needs at least one task")
    tasks: list[TaskSpec] = []
    for place, told in enumerate(raw):
        field = f"spec.tasks[{place}]"
        task = _task(told, f"default{place}", field)
        if any(task.name == other.name for other in tasks):
            raise Unreadable(f"{field}.name: another task is called {task.name} already")
        tasks.append(task)
    _check_order(tasks)
    return tuple(tasks)


def _task(raw: Json, default_name: str, field: str) -> TaskSpec:
    name = text(raw, "name") or default_name
    if not _NAME.fullmatch(name):
        raise Unreadable(f'{field}.name: "{name}" is not lower case letters, digits and hyphens')
    replicas = number(raw, "replicas", field, 0)
    partition = _partition(raw.get("partitionPolicy"), replicas, f"{field}.partitionPolicy")
    least = replicas
    if raw.get("minAvailable") is not None:
        least = number(raw, "minAvailable", field, 0)
    elif partition is not None and partition.least:
        least = partition.least * partition.size
    if least > replicas:
        raise Unreadable(f"{field}.minAvailable: {least} is more than its {replicas} replicas")
    if partition is not None and partition.least and least != partition.least * partition.size:
        why = f"{partition.least} partitions of {partition.size} are not minAvailable {least}"
        raise Unreadable(f"{field}.partitionPolicy.minPartitions: {why}")
    topology = text(raw, "topologyPolicy")
    if topology not in TOPOLOGY_POLICIES:
        raise Unreadable(f'{field}.topologyPolicy: "{topology}" is not known')
    if topology in ("restricted", "single-numa-node"):
        raise Unreadable(f"{field}.topologyPolicy: {topology} {UNALIGNED}")
    after = raw.get("dependsOn") or {}
    return replace(
        _template(raw.get("template"), TaskSpec(name, replicas, least, {}), f"{field}.template"),
        policies=policies(raw.get("policies"), f"{field}.policies"),
        max_retry=number(raw, "maxRetry", field, NO_LIMIT) or DEFAULT_RETRY,
        after=_names(after.get("name"), f"{field}.dependsOn.name"),
        after_any=_any(after, f"{field}.dependsOn.iteration"),
        partition=partition,
        topology_policy=topology,
    )


def _template(raw: Any, task: TaskSpec, field: str) -> TaskSpec:
    spec = raw.get("spec") if isinstance(raw, dict) else None
    if not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
        raise Unreadable(f"{field}.spec.containers: it is missing")
    if not spec["containers"]:
        raise Unreadable(f"{field}.spec.containers: there is none")
    try:
        requests = podspec.read(spec, False).requests
        limits: dict[str, int] = {}
        for container in spec["containers"]:
            resources = container.get("resources") or {}
            for resource, amount in podspec.amounts(resources.get("limits"), "limits").items():
                limits[resource] = limits.get(resource, 0) + amount
    except Unreadable as error:
        raise Unreadable(f"{field}.{error}") from None
    except BROKEN as error:
        raise Unreadable(f"{field}.spec: {what(error)}") from None
    return replace(task, template=raw, requests=requests, limits=tuple(sorted(limits.items())))


def _partition(raw: Json | None, replicas: int, field: str) -> Partition | None:
    if not raw:
        return None
    parts = number(raw, "totalPartitions", field, 1)
    size = number(raw, "partitionSize", field, 1)
    least = number(raw, "minPartitions", field, 0)
    if parts * size != replicas:
        raise Unreadable(f"{field}: {parts} partitions of {size} are not {replicas} replicas")
    if least > parts:
        raise Unreadable(f"{field}.minPartitions: {least} is more than {parts}")
    topology = tier_or_name(raw.get("networkTopology"), f"{field}.networkTopology")
    return Partition(parts, size, least, topology)


def tier_or_name(raw: Json | None, field: str) -> Json | None:
    """networkTopology: the scheduler reads it in the PodGroup; here only what can't be both."""
    if raw and raw.get("highestTierAllowed") is not None and raw.get("highestTierName"):
        raise Unreadable(f"{field}: highestTierAllowed and highestTierName exclude each other")
    return raw or None


def policies(raw: Any, field: str) -> tuple[LifecyclePolicy, ...]:
    found: list[LifecyclePolicy] = []
    events: set[str] = set()
    codes: set[int] = set()
    for place, told in enumerate(raw or ()):
        policy = _policy(told, f"{field}[{place}]")
        twice = events & set(policy.events) or codes & {policy.exit_code}
        if twice:
            raise Unreadable(f"{field}[{place}]: {twice.pop()} has a policy already")
        events |= set(policy.events)
        codes |= set() if policy.exit_code is None else {policy.exit_code}
        found.append(policy)
    if ANY in events and len(events) > 1:
        raise Unreadable(f'{field}: "*" stands for every event and can\'t be beside others')
    return tuple(found)


def _policy(raw: Json, field: str) -> LifecyclePolicy:
    action = text(raw, "action")
    if action not in ACTIONS:
        raise Unreadable(f'{field}.action: "{action}" is not one of {", ".join(ACTIONS)}')
    events = _names(raw.get("events"), f"{field}.events")
    if event := text(raw, "event"):
        events = (event, *events)
    for event in events:
        if event not in EVENTS:
            raise Unreadable(f'{field}.event: "{event}" is not one of {", ".join(EVENTS)}')
    code = raw.get("exitCode")
    if code is not None:
        code = number(raw, "exitCode", field, -MOST)
        if code == 0:
            raise Unreadable(f"{field}.exitCode: 0 is no failure")
    if bool(events) == (code is not None):
        raise Unreadable(f"{field}: needs one of event, events and exitCode")
    timeout_s = duration_s(raw, "timeout", field) or 0.0
    return LifecyclePolicy(action, tuple(dict.fromkeys(events)), code, timeout_s)


def _check_order(tasks: list[TaskSpec]) -> None:
    """Every task that is waited for exists, and no task waits for itself, however far around."""
    by_name = {task.name: task for task in tasks}
    for place, task in enumerate(tasks):
        for name in task.after:
            if name not in by_name:
                raise Unreadable(f"spec.tasks[{place}].dependsOn.name: there is no task {name}")
    done: set[str] = set()
    while left := [task for task in tasks if task.name not in done]:
        ready = {task.name for task in left if done.issuperset(task.after)}
        if not ready:
            names = ", ".join(task.name for task in left)
            raise Unreadable(f"spec.tasks: dependsOn goes round in a circle: {names}")
        done |= ready


def _any(raw: Json, field: str) -> bool:
    iteration = text(raw, "iteration")
    if iteration not in ("", "any", "all"):
        raise Unreadable(f'{field}: "{iteration}" is neither any nor all')
    return iteration == "any"


def _names(raw: Any, field: str) -> tuple[str, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list) or not all(isinstance(name, str) for name in raw):
        raise Unreadable(f"{field}: {raw!r} is not a list of texts")
    return tuple(raw)


def number(raw: Json, key: str, field: str, least: int) -> int:
    value = raw.get(key)
    if value is None:
        value = max(least, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise Unreadable(f"{field}.{key}: {value!r} is not a whole number from {least}")
    return value


def duration_s(raw: Json, key: str, field: str) -> float | None:
    value = raw.get(key)
    if value is None:
        return None
    try:
        return seconds(str(value))
    except NotAQuantity as error:
        raise Unreadable(f"{field}.{key}: {error}") from None

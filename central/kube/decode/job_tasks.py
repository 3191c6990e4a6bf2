"""A Job's tasks and policies as raw JSON -> values. Pure; raises Unreadable with the field."""

import re
from dataclasses import replace
from typing import Any

from central.kube.decode import podspec
from central.kube.decode.quantities import InvalidQuantity, parse_duration
from central.kube.errors import DECODE_ERRORS, FieldError, error_text, text_field
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


def decode_tasks(raw: Any) -> tuple[TaskSpec, ...]:
    if not isinstance(raw, list) or not raw:
        raise FieldError("spec.tasks: a Job needs at least one task")
    tasks: list[TaskSpec] = []
    for place, told in enumerate(raw):
        field = f"spec.tasks[{place}]"
        task = _task(told, f"default{place}", field)
        if any(task.name == other.name for other in tasks):
            raise FieldError(f"{field}.name: another task is called {task.name} already")
        tasks.append(task)
    _check_order(tasks)
    return tuple(tasks)


def _task(raw: Json, default_name: str, field: str) -> TaskSpec:
    name = text_field(raw, "name") or default_name
    if not _NAME.fullmatch(name):
        raise FieldError(f'{field}.name: "{name}" is not lower case letters, digits and hyphens')
    replicas = int_field(raw, "replicas", field, 0)
    partition = _partition(raw.get("partitionPolicy"), replicas, f"{field}.partitionPolicy")
    least = replicas
    if raw.get("minAvailable") is not None:
        least = int_field(raw, "minAvailable", field, 0)
    elif partition is not None and partition.least:
        least = partition.least * partition.size
    if least > replicas:
        raise FieldError(f"{field}.minAvailable: {least} is more than its {replicas} replicas")
    if partition is not None and partition.least and least != partition.least * partition.size:
        why = f"{partition.least} partitions of {partition.size} are not minAvailable {least}"
        raise FieldError(f"{field}.partitionPolicy.minPartitions: {why}")
    topology = text_field(raw, "topologyPolicy")
    if topology not in TOPOLOGY_POLICIES:
        raise FieldError(f'{field}.topologyPolicy: "{topology}" is not known')
    if topology in ("restricted", "single-numa-node"):
        raise FieldError(f"{field}.topologyPolicy: {topology} {UNALIGNED}")
    after = raw.get("dependsOn") or {}
    return replace(
        _template(raw.get("template"), TaskSpec(name, replicas, least, {}), f"{field}.template"),
        policies=decode_policies(raw.get("policies"), f"{field}.policies"),
        max_retry=int_field(raw, "maxRetry", field, NO_LIMIT) or DEFAULT_RETRY,
        after=_names(after.get("name"), f"{field}.dependsOn.name"),
        after_any=_any(after, f"{field}.dependsOn.iteration"),
        partition=partition,
        topology_policy=topology,
    )


def _template(raw: Any, task: TaskSpec, field: str) -> TaskSpec:
    spec = raw.get("spec") if isinstance(raw, dict) else None
    if not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
        raise FieldError(f"{field}.spec.containers: it is missing")
    if not spec["containers"]:
        raise FieldError(f"{field}.spec.containers: there is none")
    try:
        requests = podspec.decode_pod_spec(spec, False).requests
        limits: dict[str, int] = {}
        for container in spec["containers"]:
            resources = container.get("resources") or {}
            for resource, amount in podspec.resource_amounts(
                resources.get("limits"), "limits"
            ).items():
                limits[resource] = limits.get(resource, 0) + amount
    except FieldError as error:
        raise FieldError(f"{field}.{error}") from None
    except DECODE_ERRORS as error:
        raise FieldError(f"{field}.spec: {error_text(error)}") from None
    return replace(task, template=raw, requests=requests, limits=tuple(sorted(limits.items())))


def _partition(raw: Json | None, replicas: int, field: str) -> Partition | None:
    if not raw:
        return None
    parts = int_field(raw, "totalPartitions", field, 1)
    size = int_field(raw, "partitionSize", field, 1)
    least = int_field(raw, "minPartitions", field, 0)
    if parts * size != replicas:
        raise FieldError(f"{field}: {parts} partitions of {size} are not {replicas} replicas")
    if least > parts:
        raise FieldError(f"{field}.minPartitions: {least} is more than {parts}")
    topology = network_topology(raw.get("networkTopology"), f"{field}.networkTopology")
    return Partition(parts, size, least, topology)


def network_topology(raw: Json | None, field: str) -> Json | None:
    """networkTopology: the scheduler reads it in the PodGroup; here only what can't be both."""
    if raw and raw.get("highestTierAllowed") is not None and raw.get("highestTierName"):
        raise FieldError(f"{field}: highestTierAllowed and highestTierName exclude each other")
    return raw or None


def decode_policies(raw: Any, field: str) -> tuple[LifecyclePolicy, ...]:
    found: list[LifecyclePolicy] = []
    events: set[str] = set()
    codes: set[int] = set()
    for place, told in enumerate(raw or ()):
        policy = _policy(told, f"{field}[{place}]")
        twice = events & set(policy.events) or codes & {policy.exit_code}
        if twice:
            raise FieldError(f"{field}[{place}]: {twice.pop()} has a policy already")
        events |= set(policy.events)
        codes |= set() if policy.exit_code is None else {policy.exit_code}
        found.append(policy)
    if ANY in events and len(events) > 1:
        raise FieldError(f'{field}: "*" stands for every event and can\'t be beside others')
    return tuple(found)


def _policy(raw: Json, field: str) -> LifecyclePolicy:
    action = text_field(raw, "action")
    if action not in ACTIONS:
        raise FieldError(f'{field}.action: "{action}" is not one of {", ".join(ACTIONS)}')
    events = _names(raw.get("events"), f"{field}.events")
    if event := text_field(raw, "event"):
        events = (event, *events)
    for event in events:
        if event not in EVENTS:
            raise FieldError(f'{field}.event: "{event}" is not one of {", ".join(EVENTS)}')
    code = raw.get("exitCode")
    if code is not None:
        code = int_field(raw, "exitCode", field, -MOST)
        if code == 0:
            raise FieldError(f"{field}.exitCode: 0 is no failure")
    if bool(events) == (code is not None):
        raise FieldError(f"{field}: needs one of event, events and exitCode")
    timeout_s = duration_field(raw, "timeout", field) or 0.0
    return LifecyclePolicy(action, tuple(dict.fromkeys(events)), code, timeout_s)


def _check_order(tasks: list[TaskSpec]) -> None:
    """Every task that is waited for exists, and no task waits for itself, however far around."""
    by_name = {task.name: task for task in tasks}
    for place, task in enumerate(tasks):
        for name in task.after:
            if name not in by_name:
                raise FieldError(f"spec.tasks[{place}].dependsOn.name: there is no task {name}")
    done: set[str] = set()
    while left := [task for task in tasks if task.name not in done]:
        ready = {task.name for task in left if done.issuperset(task.after)}
        if not ready:
            names = ", ".join(task.name for task in left)
            raise FieldError(f"spec.tasks: dependsOn goes round in a circle: {names}")
        done |= ready


def _any(raw: Json, field: str) -> bool:
    iteration = text_field(raw, "iteration")
    if iteration not in ("", "any", "all"):
        raise FieldError(f'{field}: "{iteration}" is neither any nor all')
    return iteration == "any"


def _names(raw: Any, field: str) -> tuple[str, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list) or not all(isinstance(name, str) for name in raw):
        raise FieldError(f"{field}: {raw!r} is not a list of texts")
    return tuple(raw)


def int_field(raw: Json, key: str, field: str, least: int) -> int:
    value = raw.get(key)
    if value is None:
        value = max(least, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise FieldError(f"{field}.{key}: {value!r} is not a whole number from {least}")
    return value


def duration_field(raw: Json, key: str, field: str) -> float | None:
    value = raw.get(key)
    if value is None:
        return None
    try:
        return parse_duration(str(value))
    except InvalidQuantity as error:
        raise FieldError(f"{field}.{key}: {error}") from None

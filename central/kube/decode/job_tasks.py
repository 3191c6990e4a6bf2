"""The tasks and lifecycle policies of a Job. Raises FieldError."""

import re
from dataclasses import replace
from typing import Any

from central.kube.decode import fields, podspec
from central.kube.decode.effective_requests import resource_amounts
from central.kube.decode.fields import DECODE_ERRORS, INT32_MAX, FieldError
from central.model import jobspec, limits
from central.model.amounts import Amounts
from central.model.json_types import Json

DEFAULT_RETRY = 3
TOPOLOGY_POLICIES = ("", "none", "best-effort", "restricted", "single-numa-node")
# The kubelet chooses a pod's CPUs by a topology manager policy that the scheduler does not know.
UNALIGNED = (
    "is not supported: the kubelet chooses the CPUs; leave it out (GPU placement already prefers few "
    "NUMA nodes)"
)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def decode_tasks(raw: Any) -> tuple[jobspec.TaskSpec, ...]:
    if not isinstance(raw, list) or not raw:
        raise FieldError("spec.tasks: a Job needs at least one task")
    tasks: dict[str, jobspec.TaskSpec] = {}
    for index, one in enumerate(raw):
        field = f"spec.tasks[{index}]"
        task = _task(one, f"default{index}", field)
        if task.name in tasks:
            raise FieldError(f"{field}.name: {task.name} is used twice")
        tasks[task.name] = task
    _check_order(tasks)
    return tuple(tasks.values())


def _task(raw: Json, default_name: str, field: str) -> jobspec.TaskSpec:
    name = fields.text(raw, "name") or default_name
    if not _NAME.fullmatch(name):
        raise FieldError(f'{field}.name: "{name}" must be lower case letters, digits and hyphens')
    replicas = fields.integer(raw, "replicas", field, 0, limits.REPLICAS)
    partition = _partition(raw.get("partitionPolicy"), replicas, f"{field}.partitionPolicy")
    least = replicas
    if raw.get("minAvailable") is not None:
        least = fields.integer(raw, "minAvailable", field, 0)
    elif partition is not None and partition.least:
        least = partition.least * partition.size
    if least > replicas:
        raise FieldError(f"{field}.minAvailable: {least} exceeds the {replicas} replicas")
    if partition is not None and partition.least and least != partition.least * partition.size:
        why = f"{partition.least} partitions of {partition.size} are not minAvailable {least}"
        raise FieldError(f"{field}.partitionPolicy.minPartitions: {why}")
    topology = fields.text(raw, "topologyPolicy")
    if topology not in TOPOLOGY_POLICIES:
        raise FieldError(f'{field}.topologyPolicy: "{topology}" is unknown')
    if topology in ("restricted", "single-numa-node"):
        raise FieldError(f"{field}.topologyPolicy: {topology} {UNALIGNED}")
    after = raw.get("dependsOn") or {}
    return replace(
        _template(
            raw.get("template"), jobspec.TaskSpec(name, replicas, least, {}), f"{field}.template"
        ),
        policies=decode_policies(raw, field),
        max_retry=fields.integer(raw, "maxRetry", field, jobspec.NO_LIMIT) or DEFAULT_RETRY,
        after=fields.strings(after, "name", f"{field}.dependsOn", limits.TASKS),
        after_any=_is_any(after, f"{field}.dependsOn.iteration"),
        partition=partition,
        topology_policy=topology,
    )


def _template(raw: Any, task: jobspec.TaskSpec, field: str) -> jobspec.TaskSpec:
    spec = raw.get("spec") if isinstance(raw, dict) else None
    if not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
        raise FieldError(f"{field}.spec.containers: missing")
    if not spec["containers"]:
        raise FieldError(f"{field}.spec.containers: empty")
    try:
        requests, limits = _amounts(spec)
    except FieldError as error:
        raise FieldError(f"{field}.{error}") from None
    except DECODE_ERRORS as error:
        raise FieldError(fields.described(error, _amounts, spec, prefix=f"{field}.spec")) from None
    return replace(task, template=raw, requests=requests, limits=limits)


def _amounts(spec: Json) -> tuple[Amounts, Amounts]:
    """The requests and the limits of the pods. Raises DECODE_ERRORS."""
    requests = podspec.decode_pod_spec(spec, False).requests
    limits: dict[str, int] = {}
    for container in spec["containers"]:
        resources = container.get("resources") or {}
        for resource, amount in resource_amounts(resources.get("limits"), "limits").items():
            limits[resource] = limits.get(resource, 0) + amount
    return requests, tuple(sorted(limits.items()))


def _partition(raw: Json | None, replicas: int, field: str) -> jobspec.Partition | None:
    if not raw:
        return None
    parts = fields.integer(raw, "totalPartitions", field, 1)
    size = fields.integer(raw, "partitionSize", field, 1)
    least = fields.integer(raw, "minPartitions", field, 0)
    if parts * size != replicas:
        raise FieldError(f"{field}: {parts} partitions of {size} are not {replicas} replicas")
    if least > parts:
        raise FieldError(f"{field}.minPartitions: {least} exceeds {parts}")
    topology = network_topology(raw.get("networkTopology"), f"{field}.networkTopology")
    return jobspec.Partition(parts, size, least, topology)


def network_topology(raw: Json | None, field: str) -> Json | None:
    """Checks the field; the scheduler reads it from the Job's PodGroup."""
    if raw and raw.get("highestTierAllowed") is not None and raw.get("highestTierName"):
        raise FieldError(f"{field}: highestTierAllowed and highestTierName exclude each other")
    return raw or None


def decode_policies(raw: Json, prefix: str) -> tuple[jobspec.LifecyclePolicy, ...]:
    field = f"{prefix}.policies"
    found: list[jobspec.LifecyclePolicy] = []
    events: set[str] = set()
    codes: set[int] = set()
    for index, one in enumerate(fields.entries(raw, "policies", prefix, limits.POLICIES)):
        policy = _policy(one, f"{field}[{index}]")
        twice = events & set(policy.events) or codes & {policy.exit_code}
        if twice:
            raise FieldError(f"{field}[{index}]: {twice.pop()} already has a policy")
        events |= set(policy.events)
        codes |= set() if policy.exit_code is None else {policy.exit_code}
        found.append(policy)
    if jobspec.ANY in events and len(events) > 1:
        raise FieldError(f'{field}: "*" stands for every event and excludes others')
    return tuple(found)


def _policy(raw: Json, field: str) -> jobspec.LifecyclePolicy:
    action = fields.choice(f"{field}.action", fields.text(raw, "action"), *jobspec.ACTIONS)
    events = fields.strings(raw, "events", field, limits.POLICIES)
    if event := fields.text(raw, "event"):
        events = (event, *events)
    for event in events:
        fields.choice(f"{field}.event", event, *jobspec.EVENTS)
    code = raw.get("exitCode")
    if code is not None:
        code = fields.integer(raw, "exitCode", field, -INT32_MAX)
        if code == 0:
            raise FieldError(f"{field}.exitCode: 0 is not a failure")
    if bool(events) == (code is not None):
        raise FieldError(f"{field}: needs one of event, events and exitCode")
    timeout_s = fields.duration(raw, "timeout", field) or 0.0
    return jobspec.LifecyclePolicy(action, tuple(dict.fromkeys(events)), code, timeout_s)


def _check_order(tasks: dict[str, jobspec.TaskSpec]) -> None:
    """Every dependency exists and is part of no cycle."""
    for index, task in enumerate(tasks.values()):
        for name in task.after:
            if name not in tasks:
                raise FieldError(f"spec.tasks[{index}].dependsOn.name: there is no task {name}")
    fields.check_acyclic("spec.tasks", {task.name: task.after for task in tasks.values()})


def _is_any(raw: Json, field: str) -> bool:
    return fields.choice(field, fields.text(raw, "iteration"), "", "any", "all") == "any"

"""JobFlows and JobTemplates as raw JSON -> facts. Pure; nothing is raised but Malformed."""

from dataclasses import replace

from central.kube.errors import (
    DECODE_ERRORS,
    FieldError,
    MalformedObject,
    error_text,
    object_name,
    text_field,
)
from central.model.facts import FlowSeen, FlowStep, ReadinessCheck, TemplateSeen
from central.model.json_types import Json

_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


def decode_job_template(raw: Json) -> TemplateSeen:
    try:
        meta = raw["metadata"]
        return TemplateSeen(
            meta["namespace"],
            meta["name"],
            meta["uid"],
            raw.get("spec") or {},
            meta.get("labels") or {},
            meta.get("annotations") or {},
            raw.get("status") or {},
        )
    except DECODE_ERRORS as error:
        raise MalformedObject(f"JobTemplate {object_name(raw)}: {error_text(error)}") from error


def decode_jobflow(raw: Json) -> FlowSeen:
    try:
        meta, status = raw["metadata"], raw.get("status") or {}
        seen = FlowSeen(
            meta["namespace"],
            meta["name"],
            meta["uid"],
            phase=text_field(status.get("state") or {}, "phase"),
            status=status,
            deleting="deletionTimestamp" in meta,
        )
    except DECODE_ERRORS as error:
        raise MalformedObject(f"JobFlow {object_name(raw)}: {error_text(error)}") from error
    try:
        spec = raw["spec"]
        policy = text_field(spec, "jobRetainPolicy") or "retain"
        if policy not in ("retain", "delete"):
            raise FieldError(f'spec.jobRetainPolicy: "{policy}" is neither retain nor delete')
        steps = tuple(_step(place, one) for place, one in enumerate(spec.get("flows") or ()))
        _check_order(steps)
        return replace(seen, steps=steps, retain=policy == "retain")
    except DECODE_ERRORS as error:
        return replace(seen, error=error_text(error))


def _step(place: int, raw: Json) -> FlowStep:
    field = f"spec.flows[{place}]"
    depends = raw.get("dependsOn") or {}
    probe = depends.get("probe") or {}
    checks = []
    for kind in ("httpGetList", "tcpSocketList"):
        for at, one in enumerate(probe.get(kind) or ()):
            checks.append(_check(f"{field}.dependsOn.probe.{kind}[{at}]", one, kind))
    probes = []
    for one in probe.get("taskStatusList") or ():
        task, phase = text_field(one, "taskName"), text_field(one, "phase")
        if phase not in _PHASES:
            raise FieldError(f'{field}.dependsOn.probe.taskStatusList: "{phase}" is no phase')
        probes.append((task, phase))
    name = text_field(raw, "name")
    if not name:
        raise FieldError(f"{field}.name: it names no JobTemplate")
    patch = (raw.get("patch") or {}).get("jobSpec") or {}
    return FlowStep(
        name, tuple(depends.get("targets") or ()), tuple(probes), tuple(checks), patch=patch
    )


def _check(field: str, raw: Json, kind: str) -> ReadinessCheck:
    port, task = raw.get("port"), text_field(raw, "taskName")
    if type(port) is not int or not 1 <= port <= 65535:
        raise FieldError(f"{field}.port: {port!r} is no port (1 to 65535)")
    if kind == "tcpSocketList":
        return ReadinessCheck(task, port)
    path, header = text_field(raw, "path"), raw.get("httpHeader") or {}
    if not path.startswith("/"):
        raise FieldError(f'{field}.path: "{path}" does not begin with /')
    name, value = text_field(header, "name"), text_field(header, "value")
    if value and not name:
        raise FieldError(f"{field}.httpHeader.name: it is missing")
    return ReadinessCheck(task, port, path, (name, value) if name else None)


def _check_order(steps: tuple[FlowStep, ...]) -> None:
    """Each name stands once, every step that is waited for exists, and none waits for itself."""
    names = [step.name for step in steps]
    for place, step in enumerate(steps):
        if step.name in names[:place]:
            raise FieldError(f"spec.flows[{place}].name: {step.name} stands there twice")
        for target in step.after:
            if target not in names:
                where = f"spec.flows[{place}].dependsOn.targets"
                raise FieldError(f"{where}: there is no step {target}")
    done: set[str] = set()
    while left := [step for step in steps if step.name not in done]:
        ready = {step.name for step in left if done.issuperset(step.after)}
        if not ready:
            circle = ", ".join(step.name for step in left)
            raise FieldError(f"spec.flows: dependsOn goes round in a circle: {circle}")
        done |= ready

"""Probes of a JobFlow step on the pods of its dependencies: their phase, an HTTP response, an open port. The
last two become readiness probes of those pods, so only the kubelets call them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from central.controllers.job.job import Job
from central.model.facts import FlowSeen, FlowStep, ReadinessCheck
from central.model.json_types import ReadOnlyJson

PERIOD_S = 2


def checks_on(flow: FlowSeen, step: FlowStep) -> tuple[ReadinessCheck, ...]:
    """The checks that other steps of the flow make on this step's pods."""
    checks = (check for other in flow.steps if step.name in other.after for check in other.checks)
    return tuple(dict.fromkeys(checks))


def with_probes(spec: ReadOnlyJson, checks: Iterable[ReadinessCheck]) -> tuple[ReadOnlyJson, str]:
    """The Job's spec with the checks as readiness probes, and why that is impossible (or "")."""
    tasks: list[ReadOnlyJson] = [*(spec.get("tasks") or ())]
    for check in checks:
        for place, task in enumerate(tasks):
            if check.task not in ("", task.get("name")):
                continue
            probed = _probed(task, check)
            if probed is None:
                why = "its container already has another readiness probe"
                return spec, f"cannot check {check} on task {task.get('name')}: {why}"
            tasks[place] = probed
    return {**spec, "tasks": tasks}, ""


def _probed(task: ReadOnlyJson, check: ReadinessCheck) -> ReadOnlyJson | None:
    """The task with the probe; None: its container has another one."""
    template = task.get("template") or {}
    inside = template.get("spec") or {}
    containers: list[ReadOnlyJson] = [*(inside.get("containers") or ())]
    listens = [
        any(port.get("containerPort") == check.port for port in one.get("ports") or ())
        for one in containers
    ]
    at = listens.index(True) if any(listens) else 0
    if not containers:
        return task  # invalid; the API server reports it
    probe = _probe(check)
    if containers[at].get("readinessProbe") not in (None, probe):
        return None
    containers[at] = {**containers[at], "readinessProbe": probe}
    return {**task, "template": {**template, "spec": {**inside, "containers": containers}}}


def _probe(check: ReadinessCheck) -> ReadOnlyJson:
    if not check.path:
        return {"tcpSocket": {"port": check.port}, "periodSeconds": PERIOD_S}
    get: dict[str, Any] = {"path": check.path, "port": check.port}
    if check.header:
        name, value = check.header
        get["httpHeaders"] = [{"name": name, "value": value}]
    return {"httpGet": get, "periodSeconds": PERIOD_S}


def unmet(step: FlowStep, target: str, job: Job) -> str:
    """Returns the condition of the step that the target's pods do not meet yet; "" if they meet all."""
    tasks = {task.name: task.replicas for task in job.spec.tasks}
    phases: Counter[tuple[str, str]] = Counter()
    ready: Counter[str] = Counter()
    for pod in job.current().values():
        if (part := pod.part) is not None and not pod.deleting:
            phases[part.task, pod.phase] += 1
            done = pod.phase == "Succeeded" or (pod.phase == "Running" and part.ready)
            ready[part.task] += done
    known = False
    for task, phase in step.probes:
        if task in tasks:
            known = True
            if phases[task, phase] < tasks[task]:
                return f"waiting for {target}: task {task} is not completely {phase}"
    for check in step.checks:
        for task in [check.task] if check.task else tasks:
            if task in tasks:
                known = True
                if ready[task] < tasks[task]:
                    return (
                        f"waiting for {target}: {ready[task]} of {tasks[task]} pods of task {task} "
                        f"pass {check}"
                    )
    return "" if known else f"waiting for {target}"

"""What a flow's step may ask of the pods that it waits for: their phase, an HTTP answer, an open port. The
last two become readiness probes of these pods, so that their own kubelets ask and nobody else calls them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from central.controllers.job.job import Job
from central.model.facts import FlowSeen, FlowStep, ReadinessCheck
from central.model.json_types import ReadOnlyJson

PERIOD_S = 2


def checks_on(flow: FlowSeen, step: FlowStep) -> tuple[ReadinessCheck, ...]:
    """What others ask of this step's pods."""
    checks = (check for other in flow.steps if step.name in other.after for check in other.checks)
    return tuple(dict.fromkeys(checks))


def with_probes(spec: ReadOnlyJson, checks: Iterable[ReadinessCheck]) -> tuple[ReadOnlyJson, str]:
    """The Job's spec with them; and why it can't have them."""
    tasks: list[ReadOnlyJson] = [*(spec.get("tasks") or ())]
    for check in checks:
        for place, task in enumerate(tasks):
            if check.task not in ("", task.get("name")):
                continue
            probed = _probed(task, check)
            if probed is None:
                why = "the container has a readiness probe already, and can have but one"
                return spec, f"task {task.get('name')} can't be asked for {check}: {why}"
            tasks[place] = probed
    return {**spec, "tasks": tasks}, ""


def _probed(task: ReadOnlyJson, check: ReadinessCheck) -> ReadOnlyJson | None:
    """The task whose pods are ready once they answer; None: another probe is there."""
    template = task.get("template") or {}
    inside = template.get("spec") or {}
    containers: list[ReadOnlyJson] = [*(inside.get("containers") or ())]
    listens = [
        any(port.get("containerPort") == check.port for port in one.get("ports") or ())
        for one in containers
    ]
    at = listens.index(True) if any(listens) else 0
    if not containers:
        return task  # the API server says what is wrong with it
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
    """What the target's pods have not reached yet; empty: all that the step asks for."""
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
                return f"it waits for {target}: not all of task {task} is {phase}"
    for check in step.checks:
        for task in [check.task] if check.task else tasks:
            if task in tasks:
                known = True
                if ready[task] < tasks[task]:
                    return (
                        f"it waits for {target}: {ready[task]} of {tasks[task]} pods of task {task} "
                        f"answer {check}"
                    )
    return "" if known else f"it waits for {target}"

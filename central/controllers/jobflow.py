"""The JobFlow controller: creates Jobs from JobTemplates, in the order of their dependencies.

The flow's status lists the completed Jobs. So Jobs may be deleted while the flow runs, and a scheduler that
restarts creates no Job twice."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from central.controllers import jobflow_status, step_probes
from central.controllers.job.job import Job
from central.controllers.job.job_store import JobStore
from central.controllers.owner import JobOwners
from central.controllers.pending_calls import Call
from central.model.decisions import Create, Decision, Delete, SetStatus
from central.model.facts import FlowSeen, FlowStep, TemplateSeen
from central.model.jobspec import COMPLETED, controller, without_user
from central.model.json_types import ReadOnlyJson, json_merge
from central.model.object_names import NamespacedName

API = "flow.volcano.sh/v1alpha1"
OF_TEMPLATE, OF_FLOW = "volcano.sh/createdByJobTemplate", "volcano.sh/createdByJobFlow"
_LABEL = 63
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(eq=False)
class JobFlowController(JobOwners[FlowSeen]):
    KIND: ClassVar = "JobFlow"

    by_name: dict[NamespacedName, FlowSeen] = field(default_factory=dict)
    templates: dict[NamespacedName, TemplateSeen] = field(default_factory=dict)
    _refused: dict[tuple[NamespacedName, str], str] = field(default_factory=dict)  # by Job's name
    # status sent, by kind, until the watch shows it
    _written: dict[tuple[str, NamespacedName], ReadOnlyJson] = field(default_factory=dict)

    def seen(self, fact: FlowSeen) -> None:
        super().seen(fact)
        self._written.pop(("JobFlow", (fact.namespace, fact.name)), None)

    def _forget_calls(self, key: NamespacedName) -> None:
        self._written.pop(("JobFlow", key), None)
        self._refused = {place: why for place, why in self._refused.items() if place[0] != key}

    def template_seen(self, fact: TemplateSeen) -> None:
        key = (fact.namespace, fact.name)
        self.templates[key] = fact
        self._written.pop(("JobTemplate", key), None)
        self._of_template(key)

    def template_gone(self, key: NamespacedName) -> None:
        self.templates.pop(key, None)
        self._written.pop(("JobTemplate", key), None)
        self._of_template(key)

    def _of_template(self, key: NamespacedName) -> None:
        for place, flow in self.by_name.items():
            if place[0] == key[0] and any(step.name == key[1] for step in flow.steps):
                self._changed[place] = None

    def _note_answer(self, call: Call, key: NamespacedName, why: str) -> None:
        if isinstance(call, Create):
            self._refused.pop((key, call.name), None)
            if why:
                self._refused[key, call.name] = f"could not create Job {call.name}: {why}"
        elif why:
            self._written.pop((call.kind, (call.namespace, call.name)), None)

    def _status_of_set_aside(self, maker: FlowSeen, why: str) -> ReadOnlyJson:
        state = {"phase": jobflow_status.PENDING, **(maker.status.get("state") or {})}
        return {**maker.status, "state": {**state, "message": why}}

    def jobs_changed(self, jobs: Iterable[Job]) -> None:
        """Marks the flows of these Jobs: a dependency's probe may depend on the Jobs' pods."""
        for job in jobs:
            if (key := self._by_uid.get(job.seen.owner)) is not None:
                self._changed[key] = None

    # --- one JobFlow -----------------------------------------------------------------

    def _decide(
        self, jobs: JobStore, key: NamespacedName, flow: FlowSeen, now: float
    ) -> list[Decision]:
        owned = jobs.owned_by(flow.namespace, flow.uid)
        children = {job.spec.name: job for job in owned if not job.seen.deleting}
        if flow.phase in jobflow_status.FINISHED:
            return self._delete_jobs(key, flow, children, now)
        decisions: list[Decision] = []
        unmet: dict[str, str] = {}
        for step in flow.steps if not flow.error else ():
            if unmet.get(step.name) == "":  # a step of the same name creates the Job
                continue
            if job_name(flow, step.name) not in children and not _is_done(flow, step.name):
                unmet[step.name] = _waits(flow, step, children)
                if not unmet[step.name]:
                    unmet[step.name], made = self._create_job(key, flow, step, now)
                    decisions += made
        status = jobflow_status.flow_status(flow, children, unmet)
        decisions += self._write("JobFlow", flow, status, key, now)
        for step in flow.steps:
            decisions += self._report(jobs, (flow.namespace, step.name), key, now)
        return decisions

    def _create_job(
        self, key: NamespacedName, flow: FlowSeen, step: FlowStep, now: float
    ) -> tuple[str, list[Decision]]:
        """Returns why the Job does not exist yet (or ""), and the calls to make."""
        name = job_name(flow, step.name)
        template = self.templates.get((flow.namespace, step.name))
        if template is None:
            return f"JobTemplate {step.name} does not exist", []
        if not self._calls.may_call(("Job", flow.namespace, name), now):
            return self._refused.get((key, name), ""), []
        spec: ReadOnlyJson = json_merge(template.spec, step.patch)
        try:
            spec, why = step_probes.with_probes(spec, step_probes.checks_on(flow, step))
        except (AttributeError, TypeError, KeyError) as error:  # a template may hold anything
            why = f"JobTemplate {step.name}: a field has the wrong type: {error}"
        if why:
            return why, []
        call = self._calls.track(_job(flow, step, template, name, spec), key)
        return self._refused.get((key, name), ""), [call]

    def _delete_jobs(
        self, key: NamespacedName, flow: FlowSeen, children: dict[str, Job], now: float
    ) -> list[Decision]:
        if flow.retain or flow.phase != jobflow_status.SUCCEED:
            return []
        why = f"JobFlow {flow.name} has succeeded and its jobRetainPolicy is delete"
        return [
            self._calls.track(Delete("Job", flow.namespace, name, job.spec.uid, why), key)
            for name, job in children.items()
            if self._calls.may_call(("Job", flow.namespace, name), now)
        ]

    def _report(
        self, jobs: JobStore, key: NamespacedName, whose: NamespacedName, now: float
    ) -> list[Decision]:
        """Updates the template's status: the names of the Jobs created from it."""
        template = self.templates.get(key)
        if template is None:
            return []
        names = sorted(
            job.spec.name
            for flow in self.by_name.values()
            if flow.namespace == key[0] and any(step.name == key[1] for step in flow.steps)
            for job in jobs.owned_by(flow.namespace, flow.uid)
            if job.spec.name == job_name(flow, key[1])
        )
        status = {"jobDependsOnList": names}
        if not names and not template.status:
            return []
        return self._write("JobTemplate", template, status, whose, now)

    def _write(
        self,
        kind: str,
        seen: FlowSeen | TemplateSeen,
        status: ReadOnlyJson,
        whose: NamespacedName,
        now: float,
    ) -> list[Decision]:
        key = (seen.namespace, seen.name)
        if status in (seen.status, self._written.get((kind, key))):
            return []
        if not self._calls.may_call((kind, *key), now):
            return []
        self._written[kind, key] = status
        return [self._calls.track(SetStatus(kind, *key, seen.uid, status), whose)]


def job_name(flow: FlowSeen, template: str) -> str:
    return f"{flow.name}-{template}"


def _is_done(flow: FlowSeen, template: str) -> bool:
    """Returns whether the flow's status lists the step's Job as completed; the Job itself may be gone."""
    return job_name(flow, template) in (flow.status.get("completedJobs") or ())


def _waits(flow: FlowSeen, step: FlowStep, children: dict[str, Job]) -> str:
    for target in step.after:
        job = children.get(job_name(flow, target))
        if _is_done(flow, target) or (job is not None and job.status.phase == COMPLETED):
            continue
        if job is None or not (step.probes or step.checks):
            return f"waiting for {target}"
        if why := step_probes.unmet(step, target, job):
            return why
    return ""


def _job(
    flow: FlowSeen, step: FlowStep, template: TemplateSeen, name: str, spec: ReadOnlyJson
) -> Create:
    marks = {OF_TEMPLATE: f"{flow.namespace}.{step.name}", OF_FLOW: f"{flow.namespace}.{flow.name}"}
    fitting = {key: value for key, value in marks.items() if len(value) <= _LABEL}
    notes = {key: value for key, value in template.annotations.items() if key != _APPLIED}
    body = {
        "metadata": {
            "name": name,
            "namespace": flow.namespace,
            "labels": {**template.labels, **fitting},
            "annotations": {**without_user(notes), **marks},
            "ownerReferences": [controller(API, "JobFlow", flow.name, flow.uid)],
        },
        "spec": spec,
    }
    return Create("Job", flow.namespace, name, body)

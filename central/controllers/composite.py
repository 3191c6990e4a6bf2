"""The Command, CronJob and JobFlow controllers behind one interface for the scheduling cycle."""

from typing import TYPE_CHECKING

from central.controllers.command import CommandController
from central.controllers.cronjob import CronJobController
from central.controllers.jobflow import JobFlowController
from central.model.decisions import Decision
from central.model.facts import (
    Answered,
    BatchFact,
    CommandGone,
    CommandSeen,
    CronGone,
    CronSeen,
    FlowGone,
    FlowSeen,
    JobGone,
    JobSeen,
    TemplateGone,
    TemplateSeen,
)

if TYPE_CHECKING:
    from central.controllers.job.job_store import JobStore
    from central.scheduler.state.cluster import Cluster


class BatchControllers:
    def __init__(self) -> None:
        self.commands = CommandController()
        self.crons = CronJobController()
        self.flows = JobFlowController()

    def apply(self, fact: BatchFact) -> None:
        match fact:
            case CommandSeen():
                self.commands.seen(fact)
            case CommandGone():
                self.commands.gone((fact.namespace, fact.name))
            case CronSeen():
                self.crons.seen(fact)
            case CronGone():
                self.crons.gone((fact.namespace, fact.name))
            case FlowSeen():
                self.flows.seen(fact)
            case FlowGone():
                self.flows.gone((fact.namespace, fact.name))
            case TemplateSeen():
                self.flows.template_seen(fact)
            case TemplateGone():
                self.flows.template_gone((fact.namespace, fact.name))

    def job_seen(self, fact: JobSeen) -> None:
        self._job_changed(fact.spec.namespace, fact.spec.name, fact.owner)

    def job_gone(self, jobs: "JobStore", fact: JobGone) -> None:
        """To be called while the JobStore still has the Job."""
        job = jobs.by_name.get((fact.namespace, fact.name))
        self._job_changed(fact.namespace, fact.name, job.seen.owner if job else "")

    def _job_changed(self, namespace: str, name: str, owner: str) -> None:
        self.crons.job_changed(namespace, name, owner)
        self.flows.job_changed(namespace, name, owner)

    def answered(self, fact: Answered, now: float) -> bool:
        """Whether the answer is to a call of one of these controllers."""
        controllers = (self.commands, self.crons, self.flows)
        return any(one.answered(fact, now) for one in controllers)

    def decide(self, cluster: "Cluster", now: float) -> list[Decision]:
        """To be called before the Job controller, which handles new requests in the same cycle."""
        decisions = self.commands.decide(cluster, now)
        decisions += self.crons.decide(cluster, now)
        if self.flows.by_name:
            self.flows.jobs_changed(cluster.jobs.by_name[key] for key in cluster.jobs.changed)
        decisions += self.flows.decide(cluster, now)
        return decisions

    def due(self, now: float) -> list[float]:
        return [*self.commands.due(now), *self.crons.due(), *self.flows.due()]

    def check(self) -> None:
        self.commands.check()
        self.crons.check()
        self.flows.check()

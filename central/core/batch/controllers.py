"""The controllers around Jobs as one: what the cluster and its turns know of them."""

from typing import TYPE_CHECKING

from central.core.batch.commands import Commands
from central.core.batch.cronjobs import CronJobs
from central.core.decisions import Decision
from central.core.facts import (
    Answered,
    BatchFact,
    CommandGone,
    CommandSeen,
    CronGone,
    CronSeen,
    JobGone,
    JobSeen,
)

if TYPE_CHECKING:
    from central.core.cluster import Cluster
    from central.core.jobs.registry import Jobs


class Controllers:
    def __init__(self) -> None:
        self.commands = Commands()
        self.crons = CronJobs()

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

    def job_seen(self, fact: JobSeen) -> None:
        self.crons.job_changed(fact.spec.namespace, fact.spec.name, fact.owner)

    def job_gone(self, jobs: "Jobs", fact: JobGone) -> None:
        """Before the Job is forgotten."""
        job = jobs.by_name.get((fact.namespace, fact.name))
        self.crons.job_changed(fact.namespace, fact.name, job.seen.owner if job else "")

    def answered(self, fact: Answered, now: float) -> bool:
        """Whether it answers one of theirs."""
        return self.commands.answered(fact, now) or self.crons.answered(fact, now)

    def decide(self, cluster: "Cluster", now: float) -> list[Decision]:
        """Before the Jobs: what they are told counts in the same turn."""
        return [*self.commands.decide(cluster, now), *self.crons.decide(cluster, now)]

    def due(self, now: float) -> list[float]:
        return [*self.commands.due(now), *self.crons.due(now)]

    def check(self) -> None:
        self.commands.check()
        self.crons.check()

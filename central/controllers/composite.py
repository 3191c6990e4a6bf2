"""All controllers as one, and a scheduler that is composed with them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Any

from central.controllers import elastic_objects
from central.controllers.command import CommandController
from central.controllers.cronjob import CronJobController
from central.controllers.elastic_objects import ElasticObjects
from central.controllers.job import elastic_jobs, job_watch, reconcile, training_view
from central.controllers.job.job import Job
from central.controllers.job.job_store import JobStore, Key
from central.controllers.jobflow import JobFlowController
from central.controllers.object_fence import ObjectFence
from central.model import facts
from central.model.decisions import Decision
from central.model.defaults import ACROSS_NAMESPACES, PATIENCE_S, USAGE_HALF_LIFE_S
from central.scheduler.elastic.elastic_gang import ElasticGang, Resize
from central.scheduler.quarantine import Quarantine
from central.scheduler.queues.min_resources import MinResources
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.scheduler import JobControllers, Policy, Scheduler
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import GangKey
from protos.names import PACK

JOB = "Job"
ControllerFact = (
    facts.BatchFact | facts.CoordinatorFact | facts.ElasticFact | facts.JobSeen | facts.JobGone
)


@dataclass(slots=True, eq=False)
class ControllersMemory:
    """The part of a checkpoint that is about controllers. job: Jobs by name, apart from their facts"""

    jobs: JobStore
    job: dict[Key, Job]
    commands: CommandController
    crons: CronJobController
    flows: JobFlowController
    elastic: ElasticObjects


class BatchControllers(JobControllers):
    """The Job controller, and those of Commands, CronJobs and JobFlows (scheduler.Controllers)."""

    def __init__(self) -> None:
        self.jobs = JobStore()
        self.commands = CommandController()
        self.crons = CronJobController()
        self.flows = JobFlowController()
        self.elastic = ElasticObjects()

    def recorded(self) -> Iterator[facts.JobSeen | facts.CoordinatorReported]:
        """The facts that the memory does not contain, apart from pods."""
        return self.jobs.recorded()

    def remember(self) -> ControllersMemory:
        return ControllersMemory(
            self.jobs, self.jobs.by_name, self.commands, self.crons, self.flows, self.elastic
        )

    def restore(self, memory: ControllersMemory) -> None:
        """Takes over what another one knew, once the facts are applied."""
        self.jobs = self.jobs.with_memory(memory.jobs, memory.job)
        self.commands, self.crons, self.flows = memory.commands, memory.crons, memory.flows
        self.elastic = memory.elastic
        self.elastic.restore()

    def apply(self, fact: ControllerFact) -> None:
        match fact:
            case facts.ElasticSeen() | facts.ElasticGone():
                self.elastic.apply(fact)
            case facts.CoordinatorReported() | facts.CoordinatorSilent():
                self.jobs.coordinator_said(fact)
            case facts.JobSeen():
                self.jobs.seen(fact)
                self._job_changed(fact.spec.namespace, fact.spec.name, fact.owner)
            case facts.JobGone():
                job = self.jobs.by_name.get((fact.namespace, fact.name))
                self._job_changed(fact.namespace, fact.name, job.seen.owner if job else "")
                self.jobs.gone((fact.namespace, fact.name))
            case facts.CommandSeen():
                self.commands.seen(fact)
            case facts.CommandGone():
                self.commands.gone((fact.namespace, fact.name))
            case facts.CronSeen():
                self.crons.seen(fact)
            case facts.CronGone():
                self.crons.gone((fact.namespace, fact.name))
            case facts.FlowSeen():
                self.flows.seen(fact)
            case facts.FlowGone():
                self.flows.gone((fact.namespace, fact.name))
            case facts.TemplateSeen():
                self.flows.template_seen(fact)
            case facts.TemplateGone():
                self.flows.template_gone((fact.namespace, fact.name))

    def discard(self, fact: ControllerFact) -> None:
        """The fact could not be applied: forgets its object, whose later facts start again."""
        if isinstance(fact, facts.CoordinatorReported | facts.CoordinatorSilent):
            return  # the next report has all of it
        if isinstance(fact, facts.ElasticSeen | facts.ElasticGone):
            self.elastic.apply(facts.ElasticGone(fact.kind, fact.namespace, fact.name))
            return
        if isinstance(fact, facts.JobSeen):
            self.jobs.gone((fact.spec.namespace, fact.spec.name))
            return
        key = (fact.namespace, fact.name)
        match fact:
            case facts.JobGone():
                self.jobs.gone(key)
            case facts.CommandSeen() | facts.CommandGone():
                self.commands.gone(key)
            case facts.CronSeen() | facts.CronGone():
                self.crons.gone(key)
            case facts.FlowSeen() | facts.FlowGone():
                self.flows.gone(key)
            case facts.TemplateSeen() | facts.TemplateGone():
                self.flows.template_gone(key)

    def _job_changed(self, namespace: str, name: str, owner: str) -> None:
        self.crons.job_changed(namespace, name, owner)
        self.flows.job_changed(namespace, name, owner)

    def answered(self, fact: facts.Answered, quarantine: Quarantine, now: float) -> bool:
        """Returns whether the fact answers a call of one of the controllers."""
        if self.elastic.answered(fact, now):
            return True
        for part in (self.commands, self.crons, self.flows):
            if part.answered(fact, ObjectFence(quarantine, part.KIND, now), now):
                return True
        if fact.kind in ("Queue", "HyperNode"):
            return False
        job_watch.answered(self.jobs, ObjectFence(quarantine, JOB, now), fact, now)
        return True

    def pod_seen(
        self, pod: facts.PodSeen, quarantine: Quarantine, now: float, *, evicting: bool
    ) -> None:
        fence = ObjectFence(quarantine, JOB, now)
        change = job_watch.SEEN
        job_watch.pod_changed(self.jobs, fence, change, pod, now, by_scheduler=evicting)

    def pod_gone(
        self, pod: facts.PodSeen, quarantine: Quarantine, now: float, *, evicting: bool
    ) -> None:
        fence = ObjectFence(quarantine, JOB, now)
        change = job_watch.GONE
        job_watch.pod_changed(self.jobs, fence, change, pod, now, by_scheduler=evicting)

    def owned_groups(self) -> Collection[tuple[str, str]]:
        """The PodGroups that the Job controller admits itself, by namespace and name."""
        return self.jobs.by_group

    def elastic_gangs(self, state: ClusterState) -> list[ElasticGang]:
        return [*elastic_jobs.elastic_gangs(self.jobs, state), *self.elastic.gangs(state)]

    def size_left_alone(self, key: GangKey, now: float) -> str:
        """Returns why the size of an elastic gang is not decided now; "" if it is, or the gang is none."""
        return self.elastic.left_alone(key, now)

    def training(self, key: GangKey, now: float) -> str:
        """Returns the report of an elastic Job's coordinator as text; "" if there is none."""
        job = self.jobs.by_group.get(key[:2])
        return "" if job is None else training_view.describe(job, now)

    def job_of(self, key: GangKey) -> str:
        """The name of the Job whose gang it is; empty: none of Lockstep's Jobs."""
        job = self.jobs.by_group.get(key[:2])
        return "" if job is None else job.key[1]

    def resize(self, asked: Resize) -> None:
        if not self.elastic.resize(asked):
            elastic_jobs.resize(self.jobs, asked)

    def decide(
        self,
        state: ClusterState,
        queues: Queues,
        min_resources: MinResources,
        quarantine: Quarantine,
        now: float,
        *,
        decisions: list[Decision],
    ) -> None:
        """Commands, CronJobs and JobFlows first: what they ask of Jobs counts in the same cycle. Appends what each
        controller decides when it has decided it: another one may raise."""
        jobs = self.jobs
        fence = partial(ObjectFence, quarantine, now=now)
        commands, crons, flows, elastic = self.commands, self.crons, self.flows, self.elastic
        decisions += commands.decide(jobs, queues, fence(commands.KIND), now)
        decisions += crons.decide(jobs, fence(crons.KIND), now)
        if flows.by_name:
            flows.jobs_changed(jobs.by_name[key] for key in jobs.changed)
        decisions += flows.decide(jobs, fence(flows.KIND), now)
        context = reconcile.JobContext(jobs, state, queues, min_resources, fence(JOB))
        decisions += reconcile.decide(context, now)
        decisions += elastic.decide(state, fence(elastic_objects.KIND), now)

    def due(self, now: float) -> list[float]:
        times = [*self.commands.due(now), *self.crons.due(), *self.flows.due(), *self.elastic.due()]
        return times if (at := reconcile.due(self.jobs)) is None else [*times, at]


def new_scheduler(
    levels: tuple[str, ...] = (),
    patience_s: float = PATIENCE_S,
    half_life_s: float = USAGE_HALF_LIFE_S,
    placement: str = PACK,
    preempt_across: str = ACROSS_NAMESPACES,
    *,
    mig_fractions: Mapping[str, Fraction | str] = MappingProxyType({}),
    share_by_weight: Iterable[str] = (),
    **more: Any,
) -> Scheduler:
    """A scheduler with all controllers; see Scheduler and Policy for the parameters. more: other fields of Policy."""
    policy = Policy(
        patience_s,
        placement,
        preempt_across,
        mig_fractions=tuple(sorted((name, Fraction(part)) for name, part in mig_fractions.items())),
        share_by_weight=frozenset(share_by_weight),
        **more,
    )
    return Scheduler(BatchControllers(), levels, policy, half_life_s)


def jobs_of(scheduler: Scheduler) -> JobStore:
    """The Jobs of a scheduler that new_scheduler() made."""
    assert isinstance(scheduler.controllers, BatchControllers)
    return scheduler.controllers.jobs

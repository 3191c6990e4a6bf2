"""The world around the scheduler on virtual time: API server, controllers and nodes. Decisions take effect at once,
and their effects return as facts."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from math import inf

from central.controllers.builtin_controllers import BuiltinController, BuiltinControllers
from central.kube.decode import elastic_object_decoder, storage_decoder
from central.kube.decode.quantities import parse_duration
from central.model import facts
from central.model.decisions import Bind, Create, Decision, Delete, Evict, Patch, SetSize, SetStatus
from central.model.facts import Fact
from central.model.json_types import Json
from central.simulator.device_claim_controller import DeviceClaimController
from central.simulator.job_objects import JobObjects
from central.simulator.replica_order import surplus
from central.simulator.scenario import STEP_S, Scenario
from central.simulator.sim_budgets import BudgetStatuses
from central.simulator.sim_kubelets import SimKubelets
from central.simulator.sim_pod import PodPlan, SimPod, first_uid, gpus_of, group_of, job_of, waits
from central.simulator.simulation_result import Ended, Evicted, Placed, Resized, SimulationResult
from central.simulator.suspended_work import SuspendedWork
from central.simulator.training_progress import MEASURED_S, TrainingJob, TrainingProgress
from central.simulator.volume_controller import VolumeController
from protos.names import GRACE, RUNS_FOR, START_TAKES
from protos.topology import indices_of

RUNS = ("Pending", "Running")

Event = Callable[[float], Iterable[Fact]]  # what happens at a time, and the facts that it makes


class World:
    def __init__(self, scenario: Scenario, result: SimulationResult) -> None:
        self._job_objects = JobObjects(
            scenario.reader,
            scenario.priorities,
            result,
            pod=self._create_pod,
            delete=self._delete_pod,
        )
        self.pods: dict[str, SimPod] = {}  # by uid
        self.events: list[tuple[float, Event]] = []  # of pods, for the agenda
        self._scenario = scenario
        self._result = result
        self._kubelets = SimKubelets(scenario.machines)
        self._controllers = BuiltinControllers()
        self._budget_statuses = BudgetStatuses(scenario.budgets)
        self._volume_controller = VolumeController()
        self._device_claims = DeviceClaimController(scenario.claim_templates)
        self._training = TrainingProgress(scenario.training)
        self._suspended_work = SuspendedWork()
        self._pods_created = 0
        self.gpus_used = 0.0
        self.pods_waiting = 0

    @property
    def gpus_there(self) -> int:
        return self._kubelets.gpus_there

    # --- arrivals and departures of the scenario --------------------------------

    def arrive(self, fact: Fact, now: float) -> Iterator[Fact]:
        match fact:
            case facts.PodSeen():
                yield from self._add_pod(fact, now)
            case facts.NodeSeen():
                self._kubelets.add(fact)
                yield fact
            case facts.BudgetSeen():
                self._budget_statuses.add(fact)
                yield fact
            case facts.JobSeen():
                yield from self._job_objects.add(fact, self._scenario.jobs[fact.created])
            case facts.OwnerSeen():
                owner = self._scenario.batch[id(fact)]
                self._controllers.add(owner)
                yield fact
                elastic = elastic_object_decoder.decode(owner["kind"], owner, owned=True)
                if isinstance(elastic, facts.ElasticSeen):
                    yield elastic
            case _ if (raw := self._scenario.batch.get(id(fact))) is not None:
                yield from self._job_objects.put(raw)
            case _:
                self._device_claims.apply(fact)
                yield from self._volume_controller.apply(fact)

    def leave(self, gone: Fact, now: float) -> Iterator[Fact]:
        if isinstance(gone, facts.PodGone):
            sim_pod = self.pods.get(gone.uid)
            if sim_pod is not None:
                yield from self._remove_pod(sim_pod, now, again=False)
            return
        if isinstance(gone, facts.JobGone | facts.BatchFact):
            yield from self._job_objects.leave(gone, now)
            return
        self._device_claims.apply(gone)
        yield from self._volume_controller.apply(gone)
        if isinstance(gone, facts.OwnerGone):
            yield from self._elastic_gone(gone.uid)
            for uid in self._controllers.remove(gone.uid):
                yield from self._remove_pod(self.pods[uid], now, again=False)
        if isinstance(gone, facts.BudgetGone):
            self._budget_statuses.remove(gone)
        if isinstance(gone, facts.NodeGone):
            self._kubelets.remove(gone.name)
            for sim_pod in self._kubelets.on(gone.name):
                lost_s = now - sim_pod.started
                self._evicted(sim_pod, f"node {gone.name} is gone", now, lost_s)
                yield from self._remove_pod(sim_pod, now, again=True)

    def end(self, uid: str, now: float) -> Iterator[Fact]:
        """The pod completes, unless it was deleted before."""
        sim_pod = self.pods.get(uid)
        if sim_pod is None or sim_pod.seen.phase != "Running" or sim_pod.seen.deleting:
            return
        self._stop(sim_pod, now)
        self._suspended_work.ended(sim_pod)
        sim_pod.seen = replace(sim_pod.seen, phase="Succeeded")
        seen = sim_pod.seen
        self._result.ended.append(Ended(now, seen.namespace, seen.name, "Pod", "Succeeded"))
        self._controllers.pod_ended(sim_pod.plan.owner, uid)
        yield seen
        yield from self._device_claims.pod_ended(seen)

    # --- decisions of the scheduler --------------------------------------------

    def apply_decision(self, decision: Decision, now: float) -> Iterator[Fact]:
        match decision:
            case Bind():
                yield from self._bind(decision, now)
            case Evict():
                yield from self._evict(decision, now)
            case Create() | Delete() | SetStatus() | Patch():
                if isinstance(decision, Delete) and decision.grace_s and decision.uid in self.pods:
                    plan = self.pods[decision.uid].plan
                    grace_s = min(plan.grace_s, decision.grace_s)
                    self.pods[decision.uid].plan = replace(plan, grace_s=grace_s)
                for fact in self._job_objects.apply_decision(decision, now):
                    yield from self._volume_controller.apply(fact)
            case SetSize():
                yield from self._set_size(decision, now)
            case _:
                return

    def _set_size(self, asked: SetSize, now: float) -> Iterator[Fact]:
        place = (asked.kind, asked.namespace, asked.name)
        for _, uid in asked.leaving:
            if (sim_pod := self.pods.get(uid)) is not None:
                sim_pod.deletion_cost = -asked.rank
        raw = self._controllers.resize(asked.uid, asked.size, completions=asked.completions)
        if raw is None:
            yield facts.Answered("SetSize", *place, why="not found", code=404)
            return
        self._result.resized.append(Resized(now, *place[1:], asked.size, asked.why))
        yield facts.Answered("SetSize", *place, uid=asked.uid)
        yield elastic_object_decoder.decode(asked.kind, raw, owned=True)

    def _elastic_gone(self, uid: str) -> Iterator[Fact]:
        raw = self._controllers.raw_of(uid)
        if raw is not None:
            yield facts.ElasticGone(
                raw["kind"], raw["metadata"]["namespace"], raw["metadata"]["name"]
            )

    def _bind(self, bind: Bind, now: float) -> Iterator[Fact]:
        sim_pod = self.pods.get(bind.pod)
        if sim_pod is None:
            yield facts.BindFailed(bind.pod, bind.node, "the pod is gone", final=True)
            return
        if bind.node not in self._kubelets:
            yield facts.BindFailed(bind.pod, bind.node, f"node {bind.node} is gone")
            return
        self.pods_waiting -= waits(sim_pod.seen)
        sim_pod.seen = self._device_claims.named(bind, replace(sim_pod.seen, node=bind.node))
        self._start(sim_pod, now, planned=bind.gpus)
        if not sim_pod.plan.start_s:
            self._run(sim_pod, now)
        self._controllers.pod_started(sim_pod.plan.owner)
        seen = sim_pod.seen
        self._result.placed.append(
            Placed(
                now,
                seen.namespace,
                seen.name,
                bind.node,
                tuple(indices_of(sim_pod.gpus)),
                group_of(seen),
                now - sim_pod.since,
                gpus_of(seen),
            )
        )
        yield from self._volume_controller.bind_claims(bind)
        yield from self._device_claims.bind_claims(bind)
        yield facts.BindDone(bind.pod, bind.node)
        yield seen

    def _run(self, sim_pod: SimPod, now: float) -> None:
        part = sim_pod.seen.part
        if part is not None:
            part = replace(part, ready=True)
        sim_pod.seen = replace(sim_pod.seen, phase="Running", part=part)
        self._training.joined(sim_pod, self._kubelets.gpu_models(sim_pod.seen.node), now)

    def _started(self, uid: str, now: float) -> Iterator[Fact]:
        """The bound pod runs now, unless it was deleted before."""
        sim_pod = self.pods.get(uid)
        if sim_pod is not None and sim_pod.seen.phase == "Pending":
            self._run(sim_pod, now)
            yield sim_pod.seen

    def _evict(self, evict: Evict, now: float) -> Iterator[Fact]:
        sim_pod = self.pods.get(evict.pod)
        if sim_pod is None:
            yield facts.EvictDone(evict.pod, "", evict.trial)
            return
        for budget in sim_pod.budgets:
            if evict.beyond_budgets:
                break
            if not budget.allows() and evict.pod in budget.running:
                why = f"disruption budget {budget.name} allows no disruption now"
                yield facts.EvictDone(evict.pod, why, evict.trial)
                return
        if evict.trial or sim_pod.seen.deleting:
            yield facts.EvictDone(evict.pod, "", trial=evict.trial)
            return
        lost_s = self._suspended_work.suspended(sim_pod, now)
        self._evicted(sim_pod, evict.why, now, lost_s)
        yield facts.EvictDone(evict.pod)
        yield from self._remove_pod(sim_pod, now, again=True, at_most_s=evict.grace_s or inf)

    # --- pods -----------------------------------------------------------------

    def _create_pod(
        self, seen: facts.PodSeen, raw: Json, now: float, owner: str = ""
    ) -> Iterator[Fact]:
        """Adds a pod that a controller creates. owner: uid, for Kubernetes' own controllers."""
        annotations = raw["metadata"].get("annotations") or {}
        labels = raw["metadata"].get("labels") or {}
        runs_s = parse_duration(annotations[RUNS_FOR]) if RUNS_FOR in annotations else None
        if owner and raw["spec"].get("restartPolicy", "Always") == "Always":
            runs_s = None  # its containers restart in place
        plan = PodPlan(
            runs_s,
            False,
            tuple(labels.items()),
            owner,
            storage_decoder.ephemeral_claims(raw),
            parse_duration(annotations.get(GRACE, "0s")),
            parse_duration(annotations.get(START_TAKES, "0s")),
        )
        self._scenario.plans[first_uid(seen.uid)] = plan
        yield from self._add_pod(seen, now)

    def _run_controllers(self, now: float) -> Iterator[Fact]:
        """Lets Kubernetes' controllers react to what has changed."""
        for one in self._controllers.changed():
            if one.completed():
                self._result.ended.append(Ended(now, *one.place, one.kind, "Complete"))
            for uid in self._too_many(one, now):
                yield from self._remove_pod(self.pods[uid], now, again=False)
            while len(one.pods) < one.wanted and not (one.one_by_one and self._any_waits(one)):
                raw = one.next()
                self._pods_created += 1
                meta = raw["metadata"]
                meta["uid"] = f"Pod/{meta['namespace']}/{meta['name']}#{self._pods_created}"
                seen = self._scenario.reader.pod(raw)
                seen = replace(seen, created=now + self._pods_created * STEP_S)
                yield from self._create_pod(seen, raw, now, one.uid)

    def _too_many(self, controller: BuiltinController, now: float) -> list[str]:
        """uids of the pods that it deletes."""
        if controller.kind != "ReplicaSet":
            return controller.too_many()
        return surplus([self.pods[uid] for uid in controller.pods], controller.wanted, now)

    def _any_waits(self, controller: BuiltinController) -> bool:
        return any(self.pods[uid].seen.phase != "Running" for uid in controller.pods)

    def _delete_pod(self, uid: str, now: float) -> Iterator[Fact]:
        sim_pod = self.pods.get(uid)
        if sim_pod is not None:
            yield from self._remove_pod(sim_pod, now, again=False)

    def _add_pod(self, seen: facts.PodSeen, now: float) -> Iterator[Fact]:
        plan = self._scenario.plans[first_uid(seen.uid)]
        budgets = self._scenario.budgets
        made: list[Fact] = []
        if seen.device_claims:
            seen, made = self._device_claims.make_claims(seen)
        covers = (b for b in budgets if b.covers(seen.namespace, dict(plan.labels)))
        sim_pod = SimPod(seen, plan, now, tuple(covers))
        self.pods[seen.uid] = sim_pod
        for budget in sim_pod.budgets:
            budget.pods.add(seen.uid)
        self._controllers.pod_created(plan.owner, seen.uid, seen.name, seen.phase)
        yield from self._volume_controller.add(plan.claims)
        yield from made
        yield seen
        self.pods_waiting += waits(seen)
        if seen.node and seen.phase in RUNS:
            self._start(sim_pod, now)
            if gpus_of(seen):
                self._kubelets.mark_changed(seen.node)

    def _start(self, sim_pod: SimPod, now: float, planned: int = 0) -> None:
        seen = sim_pod.seen
        wanted = gpus_of(seen)
        sim_pod.started = now
        self._kubelets.start(sim_pod, planned)
        for budget in sim_pod.budgets:
            budget.running.add(seen.uid)
        self.gpus_used += wanted
        self._result.note(now, job_of(seen), wanted, 1)
        running_at = now
        if seen.phase == "Pending" and sim_pod.plan.start_s:
            running_at += sim_pod.plan.start_s
            self.events.append((running_at, partial(self._started, seen.uid)))
        runs_s = self._suspended_work.run_time_s(sim_pod)
        if runs_s is not None:
            self.events.append((running_at + runs_s, partial(self.end, seen.uid)))

    def _stop(self, sim_pod: SimPod, now: float) -> None:
        seen = sim_pod.seen
        self._training.left(sim_pod, now)
        self._kubelets.stop(sim_pod)
        for budget in sim_pod.budgets:
            budget.running.discard(seen.uid)
            budget.pods.discard(seen.uid)
        wanted = gpus_of(seen)
        self._result.gpu_seconds_used += wanted * (now - sim_pod.started)
        self.gpus_used -= wanted
        self._result.note(now, job_of(seen), -wanted, -1)

    def _evicted(self, sim_pod: SimPod, why: str, now: float, lost_s: float) -> None:
        seen = sim_pod.seen
        self._result.gpu_seconds_lost += lost_s * gpus_of(seen)
        self._result.evicted.append(Evicted(now, seen.namespace, seen.name, seen.node, why))

    def _remove_pod(
        self, sim_pod: SimPod, now: float, *, again: bool, at_most_s: float = inf
    ) -> Iterator[Fact]:
        """Deletes the pod. again: its controller, if it has one, recreates it. at_most_s: it is killed then."""
        if (
            sim_pod.plan.grace_s
            and sim_pod.seen.node in self._kubelets
            and self._kubelets.runs(sim_pod)
        ):
            yield from self._start_leaving(sim_pod, now, again=again, at_most_s=at_most_s)
        else:
            yield from self._forget_pod(sim_pod, now, again=again)

    def _start_leaving(
        self, sim_pod: SimPod, now: float, *, again: bool, at_most_s: float
    ) -> Iterator[Fact]:
        """Marks the pod as leaving. Its controller may create the next one, except of the same name."""
        if sim_pod.seen.deleting:
            return
        sim_pod.seen = replace(sim_pod.seen, deleting=True, ended=now)
        self._training.left(sim_pod, now)
        if not self._controllers.is_numbered(sim_pod.plan.owner):
            self._controllers.pod_lost(sim_pod.plan.owner, sim_pod.seen.uid)

        def gone(at: float) -> Iterator[Fact]:
            if sim_pod.seen.uid in self.pods:
                yield from self._forget_pod(sim_pod, at, again=again)

        self.events.append((now + min(sim_pod.plan.grace_s, at_most_s), gone))
        yield sim_pod.seen

    def _forget_pod(self, sim_pod: SimPod, now: float, *, again: bool) -> Iterator[Fact]:
        seen = sim_pod.seen
        if self._kubelets.runs(sim_pod):
            self._stop(sim_pod, now)
        for budget in sim_pod.budgets:
            budget.pods.discard(seen.uid)
        self.pods_waiting -= waits(seen)
        del self.pods[seen.uid]
        self._controllers.pod_lost(sim_pod.plan.owner, seen.uid)
        yield facts.PodGone(seen.uid)
        yield from self._volume_controller.remove(sim_pod.plan.claims)
        yield from self._device_claims.pod_gone(seen)
        if again and sim_pod.plan.again and sim_pod.plan.owner not in self._controllers:
            self._pods_created += 1
            uid = f"{first_uid(seen.uid)}#{self._pods_created}"
            created = now + self._pods_created * STEP_S
            yield from self._add_pod(
                replace(seen, uid=uid, node="", phase="Pending", created=created, deleting=False),
                now,
            )

    def reports(self, now: float) -> Iterator[Fact]:
        """Facts from agents and controllers."""
        yield from self._run_controllers(now)
        yield from self._kubelets.reports()
        yield from self._budget_statuses.changes()
        for at, job in self._training.ends():
            self.events.append((at, partial(self._trained, job, job.changes)))
            if job.uid:
                then = max(now, job.paused_until) + MEASURED_S
                self.events.append((then, partial(self._measured, job, job.changes)))

    @staticmethod
    def _measured(job: TrainingJob, changes: int, _: float) -> Iterator[Fact]:
        if changes == job.changes:
            yield job.measure()

    def _trained(self, job: TrainingJob, changes: int, now: float) -> Iterator[Fact]:
        """Ends the Job's pods because its work is done, unless its members have changed since."""
        if changes != job.changes:
            return
        job.settle(now)
        for uid in list(job.members):
            yield from self.end(uid, now)

    def close(self, now: float) -> None:
        """Counts the GPU-seconds of pods that still run when the simulation ends."""
        for sim_pod in self._kubelets.running():
            self._result.gpu_seconds_used += gpus_of(sim_pod.seen) * (now - sim_pod.started)

"""The world around the scheduler, on virtual time: API server, controllers and nodes. What is asked
for comes to pass at once, and comes back as facts."""

from collections.abc import Iterator
from dataclasses import replace

from central.kube.decode import storage_decoder
from central.kube.decode.quantities import parse_duration
from central.model.decisions import Bind, Create, Decision, Delete, Evict, Patch, SetStatus
from central.model.facts import (
    BatchFact,
    BindDone,
    BindFailed,
    BudgetGone,
    BudgetSeen,
    EvictDone,
    Fact,
    JobGone,
    JobSeen,
    NodeGone,
    NodeSeen,
    OwnerGone,
    OwnerSeen,
    PodGone,
    PodSeen,
)
from central.model.json_types import Json
from central.simulator.builtin_controllers import BuiltinController, BuiltinControllers
from central.simulator.job_objects import JobObjects
from central.simulator.outcome import Ended, Evicted, Placed, SimulationResult
from central.simulator.scenario import STEP_S, Scenario
from central.simulator.sim_budgets import BudgetStatuses
from central.simulator.sim_kubelets import SimKubelets
from central.simulator.sim_pod import PodPlan, SimPod, first_uid, gpus_of, group_of, job_of, waits
from central.simulator.volume_controller import VolumeController
from protos.names import RUNS_FOR
from protos.topology import indices_of

RUNS = ("Pending", "Running")


class World:
    def __init__(self, scenario: Scenario, story: SimulationResult) -> None:
        self._making = JobObjects(
            scenario.reader,
            scenario.priorities,
            story,
            pod=self._made,
            delete=self._unmade,
        )
        self.pods: dict[str, SimPod] = {}  # by uid
        self.endings: list[tuple[float, str]] = []  # times and uids, for the agenda to take
        self._scenario = scenario
        self._story = story
        self._kubelets = SimKubelets(scenario.machines)
        self._controllers = BuiltinControllers()
        self._statuses = BudgetStatuses(scenario.budgets)
        self._shelves = VolumeController()
        self._births = 0
        self.gpus_used = 0.0
        self.pods_waiting = 0

    @property
    def gpus_there(self) -> int:
        return self._kubelets.gpus_there

    # --- what comes from outside ----------------------------------------------

    def arrive(self, fact: Fact, now: float) -> Iterator[Fact]:
        match fact:
            case PodSeen():
                yield from self._born(fact, now)
            case NodeSeen():
                self._kubelets.come(fact)
                yield fact
            case BudgetSeen():
                self._statuses.come(fact)
                yield fact
            case JobSeen():
                yield from self._making.come(fact, self._scenario.jobs[fact.created])
            case OwnerSeen():
                self._controllers.come(self._scenario.batch[id(fact)])
                yield fact
            case _ if (raw := self._scenario.batch.get(id(fact))) is not None:
                yield from self._making.put(raw)
            case _:
                yield from self._shelves.told(fact)

    def leave(self, gone: Fact, now: float) -> Iterator[Fact]:
        if isinstance(gone, PodGone):
            live = self.pods.get(gone.uid)
            if live is not None:
                yield from self._lose(live, now, again=False)
            return
        if isinstance(gone, JobGone | BatchFact):
            yield from self._making.leave(gone, now)
            return
        yield from self._shelves.told(gone)
        if isinstance(gone, OwnerGone):
            for uid in self._controllers.go(gone.uid):
                yield from self._lose(self.pods[uid], now, again=False)
        if isinstance(gone, BudgetGone):
            self._statuses.go(gone)
        if isinstance(gone, NodeGone):
            self._kubelets.go(gone.name)
            for live in self._kubelets.on(gone.name):
                self._evicted(live, f"node {gone.name} is gone", now)
                yield from self._lose(live, now, again=True)

    def end(self, uid: str, now: float) -> Iterator[Fact]:
        """The pod has done its work, unless it was taken away before."""
        live = self.pods.get(uid)
        if live is None or live.seen.phase != "Running":
            return
        self._stop(live, now)
        live.seen = replace(live.seen, phase="Succeeded")
        seen = live.seen
        self._story.ended.append(Ended(now, seen.namespace, seen.name, "Pod", "Succeeded"))
        self._controllers.ended(live.life.owner, uid)
        yield seen

    # --- what the scheduler asks for ------------------------------------------

    def apply_decision(self, decision: Decision, now: float) -> Iterator[Fact]:
        match decision:
            case Bind():
                yield from self._bind(decision, now)
            case Evict():
                yield from self._evict(decision, now)
            case Create() | Delete() | SetStatus() | Patch():
                for fact in self._making.apply_decision(decision, now):
                    yield from self._shelves.told(fact)
            case _:
                return

    def _bind(self, bind: Bind, now: float) -> Iterator[Fact]:
        live = self.pods.get(bind.pod)
        if live is None:
            yield BindFailed(bind.pod, bind.node, "the pod is gone", final=True)
            return
        if bind.node not in self._kubelets:
            yield BindFailed(bind.pod, bind.node, f"node {bind.node} is gone")
            return
        self.pods_waiting -= waits(live.seen)
        part = live.seen.part
        if part is not None:
            part = replace(part, ready=True)
        live.seen = replace(live.seen, node=bind.node, phase="Running", part=part)
        self._start(live, now, planned=bind.gpus)
        self._controllers.runs(live.life.owner)
        seen = live.seen
        self._story.placed.append(
            Placed(
                now,
                seen.namespace,
                seen.name,
                bind.node,
                tuple(indices_of(live.gpus)),
                group_of(seen),
                now - live.since,
                gpus_of(seen),
            )
        )
        yield from self._shelves.given(bind)
        yield BindDone(bind.pod, bind.node)
        yield seen

    def _evict(self, evict: Evict, now: float) -> Iterator[Fact]:
        live = self.pods.get(evict.pod)
        if live is None:
            yield EvictDone(evict.pod, "", evict.trial)
            return
        for budget in live.budgets:
            if not budget.allows() and evict.pod in budget.running:
                why = f"the disruption budget {budget.name} does not allow it now"
                yield EvictDone(evict.pod, why, evict.trial)
                return
        if evict.trial:
            yield EvictDone(evict.pod, "", trial=True)
            return
        self._evicted(live, evict.why, now)
        yield EvictDone(evict.pod)
        yield from self._lose(live, now, again=True)

    # --- pods -----------------------------------------------------------------

    def _made(self, seen: PodSeen, raw: Json, now: float, owner: str = "") -> Iterator[Fact]:
        """By a controller, which makes it again if it is lost. owner: the uid of one of Kubernetes'."""
        told = raw["metadata"].get("annotations") or {}
        labels = raw["metadata"].get("labels") or {}
        runs_s = parse_duration(told[RUNS_FOR]) if RUNS_FOR in told else None
        if owner and raw["spec"].get("restartPolicy", "Always") == "Always":
            runs_s = None  # its containers start again where they are
        life = PodPlan(
            runs_s, False, tuple(labels.items()), owner, storage_decoder.ephemeral_claims(raw)
        )
        self._scenario.lives[first_uid(seen.uid)] = life
        yield from self._born(seen, now)

    def _controlled(self, now: float) -> Iterator[Fact]:
        """What Kubernetes' controllers do about what has changed."""
        for one in self._controllers.changed():
            if one.completed():
                self._story.ended.append(Ended(now, *one.place, one.kind, "Complete"))
            for uid in one.too_many():
                yield from self._lose(self.pods[uid], now, again=False)
            while len(one.pods) < one.wanted and not (one.one_by_one and self._any_waits(one)):
                raw = one.next()
                self._births += 1
                meta = raw["metadata"]
                meta["uid"] = f"Pod/{meta['namespace']}/{meta['name']}#{self._births}"
                seen = self._scenario.reader.pod(raw)
                seen = replace(seen, created=now + self._births * STEP_S)
                yield from self._made(seen, raw, now, one.uid)

    def _any_waits(self, controller: BuiltinController) -> bool:
        return any(self.pods[uid].seen.phase != "Running" for uid in controller.pods)

    def _unmade(self, uid: str, now: float) -> Iterator[Fact]:
        live = self.pods.get(uid)
        if live is not None:
            yield from self._lose(live, now, again=False)

    def _born(self, seen: PodSeen, now: float) -> Iterator[Fact]:
        life = self._scenario.lives[first_uid(seen.uid)]
        budgets = self._scenario.budgets
        covers = (b for b in budgets if b.covers(seen.namespace, dict(life.labels)))
        live = SimPod(seen, life, now, tuple(covers))
        self.pods[seen.uid] = live
        for budget in live.budgets:
            budget.pods.add(seen.uid)
        self._controllers.born(life.owner, seen.uid, seen.name, seen.phase)
        yield from self._shelves.come(life.claims)
        yield seen
        self.pods_waiting += waits(seen)
        if seen.node and seen.phase in RUNS:
            self._start(live, now)
            if gpus_of(seen):
                self._kubelets.notice(seen.node)

    def _start(self, live: SimPod, now: float, planned: int = 0) -> None:
        seen = live.seen
        wanted = gpus_of(seen)
        live.started = now
        self._kubelets.start(live, planned)
        for budget in live.budgets:
            budget.running.add(seen.uid)
        self.gpus_used += wanted
        self._story.note(now, job_of(seen), wanted, 1)
        if live.life.runs_s is not None:
            self.endings.append((now + live.life.runs_s, seen.uid))

    def _stop(self, live: SimPod, now: float) -> None:
        seen = live.seen
        self._kubelets.stop(live)
        for budget in live.budgets:
            budget.running.discard(seen.uid)
            budget.pods.discard(seen.uid)
        wanted = gpus_of(seen)
        self._story.gpu_seconds_used += wanted * (now - live.started)
        self.gpus_used -= wanted
        self._story.note(now, job_of(seen), -wanted, -1)

    def _evicted(self, live: SimPod, why: str, now: float) -> None:
        seen = live.seen
        lost = now - live.started
        self._story.gpu_seconds_lost += lost * gpus_of(seen)
        self._story.evicted.append(Evicted(now, seen.namespace, seen.name, seen.node, why))

    def _lose(self, live: SimPod, now: float, *, again: bool) -> Iterator[Fact]:
        """The pod is deleted; its controller, if it has one, makes it again."""
        seen = live.seen
        if self._kubelets.runs(live):
            self._stop(live, now)
        for budget in live.budgets:
            budget.pods.discard(seen.uid)
        self.pods_waiting -= waits(seen)
        del self.pods[seen.uid]
        self._controllers.lost(live.life.owner, seen.uid)
        yield PodGone(seen.uid)
        yield from self._shelves.go(live.life.claims)
        if again and live.life.again and live.life.owner not in self._controllers:
            self._births += 1
            uid = f"{first_uid(seen.uid)}#{self._births}"
            created = now + self._births * STEP_S
            yield from self._born(
                replace(seen, uid=uid, node="", phase="Pending", created=created), now
            )

    def reports(self, now: float) -> Iterator[Fact]:
        """What agents and controllers tell."""
        yield from self._controlled(now)
        yield from self._kubelets.reports()
        yield from self._statuses.changes()

    def close(self, now: float) -> None:
        """Counts what still runs when the simulation ends."""
        for live in self._kubelets.running():
            self._story.gpu_seconds_used += gpus_of(live.seen) * (now - live.started)

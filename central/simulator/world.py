"""The world around the scheduler, on virtual time: API server, controllers and kubelets. What is asked
for comes to pass at once, and comes back as facts."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from central.core.decisions import Bind, Create, Decision, Delete, Evict, Patch, SetStatus
from central.core.facts import (
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
    NodeReported,
    NodeSeen,
    PodGone,
    PodSeen,
)
from central.kube.quantities import seconds
from central.simulator.budgets import Budget, Statuses
from central.simulator.documents import Json
from central.simulator.making import KINDS, Making
from central.simulator.scenario import STEP_S, Life, Scenario
from central.simulator.story import Ended, Evicted, Placed, Story
from protos.closest import closest
from protos.names import GPU, GPU_SHARE, RUNS_FOR
from protos.sharing import SHARE, WHOLE, pick
from protos.topology import Grant, Shape, indices_of, mask_of

RUNS = ("Pending", "Running")


@dataclass(slots=True)
class Live:
    """A pod of the world."""

    seen: PodSeen
    life: Life
    since: float  # when it came
    budgets: tuple[Budget, ...]
    gpus: int = 0  # mask
    started: float = 0.0


class World:
    def __init__(self, scenario: Scenario, story: Story) -> None:
        self._making = Making(
            scenario.reader,
            scenario.priorities,
            story,
            pod=self._made,
            delete=self._unmade,
        )
        self.pods: dict[str, Live] = {}  # by uid
        self.endings: list[tuple[float, str]] = []  # times and uids, for the agenda to take
        self._scenario = scenario
        self._story = story
        self._nodes: dict[str, NodeSeen] = {}
        self._on: dict[str, dict[str, Live]] = {}  # by node and uid: those that run
        self._taken: dict[str, int] = {}  # GPUs in use as a whole, by node
        self._parts: dict[str, Counter[int]] = {}  # hundredths of the others in use, by node
        self._shapes: dict[str, Shape] = {}
        self._changed: dict[str, None] = {}  # nodes whose agents have something to tell
        self._statuses = Statuses(scenario.budgets)
        self._generation = 0
        self._births = 0
        self.gpus_there = 0
        self.gpus_used = 0.0
        self.pods_waiting = 0

    # --- what comes from outside ----------------------------------------------

    def arrive(self, fact: Fact, now: float) -> Iterator[Fact]:
        match fact:
            case PodSeen():
                yield from self._born(fact, now)
            case NodeSeen():
                self._forget_node(fact.name)
                self._nodes[fact.name] = fact
                self.gpus_there += fact.allocatable.get(GPU, 0)
                self._changed[fact.name] = None
                yield fact
            case BudgetSeen():
                self._statuses.come(fact)
                yield fact
            case JobSeen():
                yield from self._making.come(fact, self._scenario.jobs[fact.created])
            case _ if (raw := self._scenario.batch.get(id(fact))) is not None:
                yield from self._making.put(raw)
            case _:
                yield fact

    def leave(self, gone: Fact, now: float) -> Iterator[Fact]:
        if isinstance(gone, PodGone):
            live = self.pods.get(gone.uid)
            if live is not None:
                yield from self._lose(live, now, again=False)
            return
        if isinstance(gone, JobGone):
            yield from self._making.gone("Job", gone.namespace, gone.name, now)
            return
        if isinstance(gone, BatchFact):
            kind = KINDS[type(gone)]
            yield from self._making.gone(kind, gone.namespace, gone.name, now)
            return
        yield gone
        if isinstance(gone, BudgetGone):
            self._statuses.go(gone)
        if isinstance(gone, NodeGone):
            self._forget_node(gone.name)
            for live in list(self._on.get(gone.name, {}).values()):
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
        yield seen

    # --- what the scheduler asks for ------------------------------------------

    def obey(self, decision: Decision, now: float) -> Iterator[Fact]:
        match decision:
            case Bind():
                yield from self._bind(decision, now)
            case Evict():
                yield from self._evict(decision, now)
            case Create() | Delete() | SetStatus() | Patch():
                yield from self._making.obey(decision, now)
            case _:
                return

    def _bind(self, bind: Bind, now: float) -> Iterator[Fact]:
        live = self.pods.get(bind.pod)
        if live is None:
            yield BindFailed(bind.pod, bind.node, "the pod is gone", final=True)
            return
        if bind.node not in self._nodes:
            yield BindFailed(bind.pod, bind.node, f"node {bind.node} is gone")
            return
        self.pods_waiting -= _waits(live.seen)
        part = live.seen.part
        if part is not None:
            part = replace(part, ready=True)
        live.seen = replace(live.seen, node=bind.node, phase="Running", part=part)
        self._start(live, now, planned=bind.gpus)
        seen = live.seen
        self._story.placed.append(
            Placed(
                now,
                seen.namespace,
                seen.name,
                bind.node,
                tuple(indices_of(live.gpus)),
                seen.part.job if seen.part is not None else seen.gang,
                now - live.since,
            )
        )
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

    def _made(self, seen: PodSeen, raw: Json, now: float) -> Iterator[Fact]:
        """By a controller of the scheduler's own, which makes it again if it is lost."""
        told = raw["metadata"].get("annotations") or {}
        labels = raw["metadata"].get("labels") or {}
        runs_s = seconds(told[RUNS_FOR]) if RUNS_FOR in told else None
        self._scenario.lives[_first_uid(seen.uid)] = Life(runs_s, False, tuple(labels.items()))
        yield from self._born(seen, now)

    def _unmade(self, uid: str, now: float) -> Iterator[Fact]:
        live = self.pods.get(uid)
        if live is not None:
            yield from self._lose(live, now, again=False)

    def _born(self, seen: PodSeen, now: float) -> Iterator[Fact]:
        life = self._scenario.lives[_first_uid(seen.uid)]
        labels = dict(life.labels)
        live = Live(
            seen,
            life,
            now,
            tuple(b for b in self._scenario.budgets if b.covers(seen.namespace, labels)),
        )
        self.pods[seen.uid] = live
        for budget in live.budgets:
            budget.pods.add(seen.uid)
        yield seen
        self.pods_waiting += _waits(seen)
        if seen.node and seen.phase in RUNS:
            self._start(live, now)
            if _gpus(seen):
                self._changed[seen.node] = None

    def _start(self, live: Live, now: float, planned: int = 0) -> None:
        seen = live.seen
        wanted = _gpus(seen)
        live.started = now
        live.gpus = self._give(live, planned) if wanted else 0
        self._on.setdefault(seen.node, {})[seen.uid] = live
        for budget in live.budgets:
            budget.running.add(seen.uid)
        if wanted:
            self.gpus_used += wanted
            self._story.held.append((now, job_of(seen), wanted))
        if live.life.runs_s is not None:
            self.endings.append((now + live.life.runs_s, seen.uid))

    def _stop(self, live: Live, now: float) -> None:
        seen = live.seen
        self._on.get(seen.node, {}).pop(seen.uid, None)
        self._take_back(live)
        for budget in live.budgets:
            budget.running.discard(seen.uid)
            budget.pods.discard(seen.uid)
        wanted = _gpus(seen)
        if wanted:
            self._story.gpu_seconds_used += wanted * (now - live.started)
            self.gpus_used -= wanted
            self._story.held.append((now, job_of(seen), -wanted))

    def _evicted(self, live: Live, why: str, now: float) -> None:
        seen = live.seen
        lost = now - live.started
        self._story.gpu_seconds_lost += lost * _gpus(seen)
        self._story.evicted.append(Evicted(now, seen.namespace, seen.name, seen.node, why, lost))

    def _lose(self, live: Live, now: float, *, again: bool) -> Iterator[Fact]:
        """The pod is deleted; its controller, if it has one, makes it again."""
        seen = live.seen
        if seen.uid in self._on.get(seen.node, {}):
            self._stop(live, now)
        for budget in live.budgets:
            budget.pods.discard(seen.uid)
        self.pods_waiting -= _waits(seen)
        del self.pods[seen.uid]
        yield PodGone(seen.uid)
        if again and live.life.again:
            self._births += 1
            uid = f"{_first_uid(seen.uid)}#{self._births}"
            created = now + self._births * STEP_S
            yield from self._born(
                replace(seen, uid=uid, node="", phase="Pending", created=created), now
            )

    # --- kubelets and agents ----------------------------------------------------

    def _give(self, live: Live, planned: int) -> int:
        """The GPUs that the kubelet hands out: the planned ones, else the closest that are free."""
        node, share = live.seen.node, live.seen.spec.request(GPU_SHARE)
        taken, parts = self._taken.get(node, 0), self._parts.setdefault(node, Counter())
        if share:
            given = planned or self._open(node, share, taken)
            gpu = given.bit_length() - 1
            if given & taken or (given and parts[gpu] + share > WHOLE):
                raise AssertionError(f"{node}: GPU {gpu} has not {share} hundredths left")
            if given:
                parts[gpu] += share
            return given
        taken |= mask_of(gpu for gpu, part in parts.items() if part)
        if planned & taken:
            raise AssertionError(f"{node}: GPUs {list(indices_of(planned & taken))} given twice")
        given = planned or self._pick(node, live.seen.spec.request(GPU), taken)
        self._taken[node] = self._taken.get(node, 0) | given
        return given

    def _take_back(self, live: Live) -> None:
        node, share = live.seen.node, live.seen.spec.request(GPU_SHARE)
        if not share:
            self._taken[node] = self._taken.get(node, 0) & ~live.gpus
        elif live.gpus:
            self._parts[node][live.gpus.bit_length() - 1] -= share

    def _open(self, node: str, share: int, taken: int) -> int:
        topology = self._scenario.machines.get(node)
        if topology is None:
            return 0
        shape = self._shapes.setdefault(node, topology.shape())
        parts = self._parts[node]
        left = {gpu: WHOLE - parts[gpu] for gpu in indices_of(topology.healthy_mask() & ~taken)}
        gpu = pick(shape, left, share)
        return 1 << gpu if gpu >= 0 else 0

    def _pick(self, node: str, wanted: int, taken: int) -> int:
        topology = self._scenario.machines.get(node)
        if topology is not None:
            shape = self._shapes.setdefault(node, topology.shape())
            return closest(shape, topology.healthy_mask() & ~taken, wanted)
        seen = self._nodes.get(node)
        there = seen.allocatable.get(GPU, 0) if seen else 0
        free = [index for index in range(there) if not taken >> index & 1][:wanted]
        return sum(1 << index for index in free) if len(free) == wanted else 0

    def reports(self) -> Iterator[Fact]:
        """What the agents tell: the hardware, and who holds what, of the nodes that came or where
        others than the scheduler put pods."""
        for node in self._changed:
            topology = self._scenario.machines.get(node)
            if topology is None or node not in self._nodes:
                continue
            self._generation += 1
            grants = tuple(
                _grant(live.seen, tuple(topology.gpus[gpu].uuid for gpu in indices_of(live.gpus)))
                for live in self._on.get(node, {}).values()
                if live.gpus and (live.seen.spec.gpu_containers or live.seen.spec.share_containers)
            )
            yield NodeReported(node, "boot", self._generation, topology, grants)
        self._changed.clear()
        yield from self._statuses.changes()

    def _forget_node(self, name: str) -> None:
        seen = self._nodes.pop(name, None)
        if seen is not None:
            self.gpus_there -= seen.allocatable.get(GPU, 0)

    def close(self, now: float) -> None:
        """Counts what still runs when the simulation ends."""
        for on in self._on.values():
            for live in on.values():
                wanted = _gpus(live.seen)
                self._story.gpu_seconds_used += wanted * (now - live.started)


def _gpus(seen: PodSeen) -> float:
    """How many it uses; of one in shares its part."""
    share = seen.spec.request(GPU_SHARE)
    return share / WHOLE if share else seen.spec.request(GPU)


def _grant(seen: PodSeen, uuids: tuple[str, ...]) -> Grant:
    if share := seen.spec.request(GPU_SHARE):
        container = seen.spec.share_containers[0][0]
        limits = ((SHARE, share),)
        return Grant(seen.namespace, seen.name, container, GPU_SHARE, uuids, limits)
    return Grant(seen.namespace, seen.name, seen.spec.gpu_containers[0][0], GPU, uuids)


def _first_uid(uid: str) -> str:
    """Of the pod that the manifest made."""
    return uid.partition("#")[0]


def _waits(seen: PodSeen) -> bool:
    return seen.ours and not seen.node and seen.phase == "Pending"


def job_of(seen: PodSeen) -> str:
    job = seen.part.job if seen.part is not None else ""
    return f"{seen.namespace}/{job or seen.gang or seen.name}"

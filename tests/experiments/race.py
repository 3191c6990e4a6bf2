"""Two schedulers on the same nodes, each of which learns late what the other did. The Binding API takes
every binding; the kubelet admits in the order of arrival and rejects what it has no GPUs for, as in
Kubernetes. A controller makes rejected and evicted pods again. The other scheduler is a model of
kube-scheduler: one pod at a time, first in first out, from a cache of its own."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import BindDone, BindFailed, EvictDone, Fact, PodGone, PodSeen
from central.scheduler import cycle
from central.simulator.event_queue import EventQueue
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

GPUS = 8
AGAIN_S = 1.0  # a controller takes so long to make a pod again
THEIR_STEP_S = 0.01  # of the other scheduler, for each pod
TICK_S = 0.5
LATEST_S = 4000.0


@dataclass(slots=True)
class Score:
    bound: int = 0
    theirs_bound: int = 0
    rejected: int = 0  # of ours
    theirs_rejected: int = 0
    evicted: int = 0
    gangs: int = 0
    gangs_done: int = 0
    theirs: int = 0
    theirs_done: int = 0

    @property
    def conflicts(self) -> float:
        """The share of bindings that a kubelet rejected."""
        return (self.rejected + self.theirs_rejected) / max(self.bound + self.theirs_bound, 1)


@dataclass(slots=True)
class _Gang:
    size: int
    runs_s: float
    running: set[str] = field(default_factory=set)
    working: bool = False


class Race:
    def __init__(self, seed: int, lag_s: float, *, packs: bool, nodes: int = 16) -> None:
        """packs: the other scheduler fills nodes, as we do; else it spreads, as is its default."""
        self.score = Score()
        self._dice = random.Random(seed)
        self._lag_s = lag_s
        self._packs = packs
        self._agenda: EventQueue[Callable[[], None]] = EventQueue()
        self._now = 0.0
        self._cluster = new_scheduler(factories.LEVELS)
        self._news: list[Fact] = []  # that have reached us, for the next turn
        self._pods: dict[str, PodSeen] = {}  # the API server's
        self._free = {f"n{i}": GPUS for i in range(nodes)}  # the kubelets'
        self._cache = dict(self._free)  # as the other scheduler believes
        self._queue: list[str] = []  # of the other scheduler
        self._busy = False
        self._gangs: dict[str, _Gang] = {}
        self._births = 0
        self._news += [factories.node(name, rack=f"r{int(name[1:]) // 8}") for name in self._free]

    def run(self, gangs: int, singles: int, over_s: float) -> Score:
        for number in range(gangs):
            self._later(self._dice.uniform(0, over_s), partial(self._gang, f"g{number}"))
        for number in range(singles):
            self._later(self._dice.uniform(0, over_s), partial(self._single, f"s{number}"))
        self._later(0.0, self._tick)
        while len(self._agenda) and self._agenda.next_at() < LATEST_S:
            self._now = self._agenda.next_at()
            for thing in self._agenda.take(self._now):
                thing()
            self._turn()
            if self.score.gangs_done == gangs and self.score.theirs_done == singles:
                break
        check_invariants(self._cluster)
        return self.score

    # --- what comes -------------------------------------------------------------

    def _gang(self, name: str) -> None:
        size, gpus = self._dice.choice(((2, 4), (4, 2), (4, 4), (3, 8), (8, 2)))
        self._gangs[name] = _Gang(size, self._dice.uniform(10, 60))
        self.score.gangs += 1
        self._tell(factories.gang(name, size, created=self._now))
        for rank in range(size):
            self._create(factories.pod(f"{name}-{rank}", gpus, name, created=self._now))

    def _single(self, name: str) -> None:
        self.score.theirs += 1
        gpus = self._dice.choice((1, 2, 4))
        self._create(factories.pod(name, gpus, created=self._now, ours=False))

    def _create(self, pod: PodSeen) -> None:
        self._births += 1
        pod = replace(pod, uid=f"{pod.name}#{self._births}", node="", phase="Pending")
        self._change(pod)
        if not pod.ours:
            self._later(self._lag_s, lambda: self._enqueue(pod.uid))

    def _again(self, pod: PodSeen) -> None:
        self._delete(pod)
        self._later(AGAIN_S, lambda: self._create(pod))

    # --- API server and kubelets --------------------------------------------------

    def _bind(self, uid: str, node: str) -> None:
        pod = self._pods.get(uid)
        if pod is None or pod.node:
            self._tell(BindFailed(uid, node, "gone", final=True))
            return
        wanted = pod.spec.request(GPU)
        fits = self._free[node] >= wanted
        if pod.ours:
            self.score.bound += 1
            self.score.rejected += not fits
            self._tell(BindDone(uid, node))
        else:
            self.score.theirs_bound += 1
            self.score.theirs_rejected += not fits
        self._change(replace(pod, node=node, phase="Running" if fits else "Failed"))
        if not fits:
            self._later(0.0, lambda: self._again(self._pods[uid]))
            return
        self._free[node] -= wanted
        assert self._free[node] >= 0
        if not pod.ours:
            self._later(self._dice.uniform(5, 60), lambda: self._end(uid))
            return
        gang = self._gangs[pod.gang]
        gang.running.add(uid)
        if len(gang.running) == gang.size and not gang.working:
            gang.working = True
            self._later(gang.runs_s, lambda: self._gang_ends(gang))

    def _gang_ends(self, gang: _Gang) -> None:
        gang.working = False
        if len(gang.running) < gang.size:
            return  # one was taken meanwhile; it works anew once it is whole again
        self.score.gangs_done += 1
        for uid in list(gang.running):
            self._end(uid)

    def _end(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is None or pod.phase != "Running":
            return
        self._free[pod.node] += pod.spec.request(GPU)
        self.score.theirs_done += not pod.ours
        self._change(replace(pod, phase="Succeeded"))

    def _delete(self, pod: PodSeen) -> None:
        if pod.phase == "Running":
            self._free[pod.node] += pod.spec.request(GPU)
        if pod.gang:
            self._gangs[pod.gang].running.discard(pod.uid)
        self._pods.pop(pod.uid, None)
        self._tell(PodGone(pod.uid))
        if pod.node and not pod.ours:
            self._later(self._lag_s, lambda: self._uncache(pod))

    def _change(self, pod: PodSeen) -> None:
        before = self._pods.get(pod.uid)
        self._pods[pod.uid] = pod
        self._tell(pod)
        self._later(self._lag_s, lambda: self._recache(before, pod))

    # --- the other scheduler ------------------------------------------------------

    def _recache(self, before: PodSeen | None, pod: PodSeen) -> None:
        """Its cache: ours as they are bound and end; its own as it bound them."""
        if pod.ours and pod.node and (before is None or not before.node) and pod.phase == "Running":
            self._cache[pod.node] -= pod.spec.request(GPU)
        elif pod.node and before is not None and before.phase == "Running" != pod.phase:
            self._cache[pod.node] += pod.spec.request(GPU)
        self._wake()

    def _uncache(self, pod: PodSeen) -> None:
        self._cache[pod.node] += pod.spec.request(GPU)
        self._wake()

    def _enqueue(self, uid: str) -> None:
        self._queue.append(uid)
        self._wake()

    def _wake(self) -> None:
        if self._queue and not self._busy:
            self._busy = True
            self._later(THEIR_STEP_S, self._schedule)

    def _schedule(self) -> None:
        """The first in its queue that fits somewhere, as far as it knows."""
        self._busy = False
        for place, uid in enumerate(self._queue):
            pod = self._pods[uid]
            wanted = pod.spec.request(GPU)
            fitting = [name for name, free in self._cache.items() if free >= wanted]
            if fitting:
                sign = 1 if self._packs else -1
                node = min(fitting, key=lambda name: (sign * self._cache[name], name))
                self._cache[node] -= wanted
                del self._queue[place]
                self._later(self._lag_s, partial(self._bind, uid, node))
                self._wake()
                return

    # --- ours -----------------------------------------------------------------------

    def _turn(self) -> None:
        facts, self._news = self._news, []
        if facts:
            self._obey(cycle.schedule_once(self._cluster, facts, self._now))

    def _tick(self) -> None:
        self._obey(cycle.schedule_once(self._cluster, [], self._now))
        self._later(TICK_S, self._tick)

    def _obey(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Bind):
                self._later(self._lag_s, partial(self._bind, decision.pod, decision.node))
            elif isinstance(decision, Evict):
                self._later(self._lag_s, partial(self._evict, decision.pod))

    def _evict(self, uid: str) -> None:
        pod = self._pods.get(uid)
        self._tell(EvictDone(uid))
        if pod is not None:
            self.score.evicted += 1
            self._again(pod)

    def _tell(self, fact: Fact) -> None:
        self._later(self._lag_s, lambda: self._news.append(fact))

    def _later(self, delay_s: float, thing: Callable[[], None]) -> None:
        self._agenda.note(self._now + delay_s, thing)

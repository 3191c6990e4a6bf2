"""A world around one scheduler: a bound pod runs at once, ends when its time is up, and goes when it is
evicted."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict, UpdateGangStatus
from central.model.defaults import ACROSS_NAMESPACES
from central.model.facts import EvictDone, Fact, PodGone, PodSeen
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.preemption.preemption_request import outranks
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

BY_PRIORITY = partial(outranks, ACROSS_NAMESPACES)
OF_PODS = (
    *("preempts", "checkpoint", "labels", "preemptable", "cooldown_s", "movable"),
    "suspension_s",
)


class World:
    """A bound pod runs at once, and ends when its time is up."""

    def __init__(self, *nodes: Fact, patience_s: float = 600.0, **other: float) -> None:
        """other: keyword arguments of new_scheduler(). Heads reserve at once, unless it says otherwise."""
        terms = {"reserve_after_s": 0.0, **other}
        self.cluster = new_scheduler(factories.LEVELS, patience_s, **terms)  # type: ignore[arg-type]  # floats
        self.running: dict[str, PodSeen] = {}
        self.lasts: dict[str, float] = {}  # the true run time, whatever the pod declares
        self.ends: dict[str, float] = {}
        self.began: dict[str, float] = {}  # by gang
        self.told: dict[str, str] = {}
        self.names: dict[str, str] = {}  # the gang, or else the name, of each pod by uid
        self.decisions: list[Decision] = []
        self.evicted: list[str] = []
        self.whys: list[str] = []
        self.leaving: dict[str, float] = {}
        self.grace_s = 5.0
        self.budgets: set[str] = set()  # pods that may not be evicted
        self.step(0.0, *nodes)

    def step(self, now: float, *facts: Fact) -> list[str]:
        arrived = [*facts]
        for uid in [uid for uid, end in self.ends.items() if end <= now]:
            del self.ends[uid]
            arrived.append(replace(self.running.pop(uid), phase="Succeeded"))
        for uid in [uid for uid, end in self.leaving.items() if end <= now]:
            del self.leaving[uid]
            self.running.pop(uid, None)
            arrived.append(PodGone(uid))
        for fact in facts:
            if isinstance(fact, PodSeen):
                self.running[fact.uid] = fact
                self.names[fact.uid] = fact.gang or fact.name
        decisions = self._cycle(arrived, now)
        self._check()
        self.decisions += decisions
        bound = sorted(self._apply(decision, now) for decision in decisions)
        return [name for name in bound if name]

    def _check(self) -> None:
        check_invariants(self.cluster)

    def _cycle(self, facts: Sequence[Fact], now: float) -> list[Decision]:
        """Other worlds look at the state before the decisions are answered."""
        return schedule_once(self.cluster, facts, now)

    def _apply(self, decision: Decision, now: float) -> str:
        if isinstance(decision, UpdateGangStatus):
            self.told[decision.gang] = decision.reason
            return ""
        if isinstance(decision, Evict):
            return self._evict(decision, now)
        if not isinstance(decision, Bind):
            return ""
        seen = replace(self.running[decision.pod], node=decision.node, phase="Running")
        self.running[decision.pod] = seen
        apply(self.cluster, seen)
        self.began.setdefault(seen.gang or seen.name, now)
        lasts = self.lasts.get(seen.gang or seen.name, seen.runs_for_s)
        if lasts is not None:
            self.ends[decision.pod] = now + lasts
        return decision.name

    def _evict(self, decision: Evict, now: float) -> str:
        if decision.name in self.budgets:
            why = "a PodDisruptionBudget forbids the eviction"
            apply(self.cluster, EvictDone(decision.pod, why, decision.trial))
            return ""
        if decision.trial:
            apply(self.cluster, EvictDone(decision.pod, trial=True))
            return ""
        self.evicted.append(decision.name)
        self.whys.append(decision.why)
        self.ends.pop(decision.pod, None)
        self.leaving[decision.pod] = now + self.grace_s
        seen = replace(self.running[decision.pod], deleting=True, ended=now)
        self.running[decision.pod] = seen
        apply(self.cluster, EvictDone(decision.pod))
        apply(self.cluster, seen)
        return ""


def job(
    name: str, pods: int, gpus: int = 8, runs_for_s: float | None = None, **other: object
) -> list[Fact]:
    """A gang of equal pods. least: its minimum; rack: whose nodes alone may run it; other: fields of the PodGroup or of
    its pods."""
    created = float(str(other.pop("created", 0.0)))
    least = int(str(other.pop("least", pods)))
    own = {key: other.pop(key) for key in OF_PODS if key in other}
    one = factories.pod(f"{name}-0", gpus, name, runs_for_s=runs_for_s, created=created)
    if rack := other.pop("rack", ""):
        one = replace(one, spec=replace(one.spec, node_selector=((RACK, str(rack)),)))
    members = [
        replace(one, uid=f"uid-{name}-{i}", name=f"{name}-{i}", order=(i, f"{name}-{i}"), **own)  # type: ignore[arg-type]  # a test's shorthand
        for i in range(pods)
    ]
    return [factories.gang(name, least, created=created, **other), *members]

"""A day of a small world with some of many features, drawn by its seed, so that in many days each meets each other.

Design: docs/design/simulation.md
"""

import random
from dataclasses import replace

from central.model.decisions import Bind, Decision
from central.model.defaults import USAGE_HALF_LIFE_S
from central.model.facts import (
    BindFailed,
    BudgetGone,
    Fact,
    GangGone,
    GangSeen,
    NodeGone,
    NodeReported,
    PodGone,
    PodSeen,
)
from central.scheduler.apply import apply
from protos.names import GPU_SHARE
from protos.topology import Grant, indices_of
from tests.central import factories
from tests.simulation.local_disks import LocalDisks
from tests.simulation.mixed_gangs import MixedGangs
from tests.simulation.mixed_nodes import MixedNodes
from tests.simulation.small_worlds import SmallWorld

NODES = [
    "reports",
    "small",
    "cpu",
    "shares",
    "slices",
    "nics",
    "exclusive",
    "switches",
    "models",
    "bare",
    "trees",
]
WEATHER = ["taints", "cordon", "vanish", "silent", "offers", "moves", "sick", "shrinks"]
GANGS = [
    "surplus",
    "protected",
    "never",
    "moving",
    "urgent",
    "levels",
    "tiers",
    "placements",
    "subgroups",
    "roles",
    "later",
    "whole",
    "resources",
    "users",
    "gates",
    "unlike",
    "rules",
    "disks",
    "namespaces",
    "singles",
    "selectors",
]
QUEUES = [
    "queues",
    "deserved",
    "guarantee",
    "capability",
    "borrowing",
    "tenants",
    "fifo",
    "closing",
    "aged",
]
EVENTS = [
    "others",
    "budgets",
    "changes",
    "resizes",
    "deletes",
    "fails",
    "lies",
    "declined",
    "drops",
]
REPORTED = {"slices", "nics", "exclusive", "switches", "models", "silent", "offers", "sick"}
EVERY = (*NODES, *WEATHER, *GANGS, *QUEUES, *EVENTS)
ARRIVALS, AFTERWARDS = 25, 10


class MixedDay(SmallWorld):
    def __init__(self, seed: int, features: frozenset[str] | None = None) -> None:
        self.features = self.drawn(seed) if features is None else features
        dice = self.dice = random.Random(seed)
        self.held: dict[str, int] = {}  # GPUs as a mask by uid, as they were planned
        nodes = dice.choice((2, 3, 4))
        self.disks = LocalDisks([f"n{i}" for i in range(nodes)])
        self.nodes = MixedNodes(dice, self.features, nodes)
        self.gangs = MixedGangs(dice, self.features, self.disks)
        self.groups: dict[str, GangSeen] = {}
        self.recounts = seed % 2 == 0
        self.forgets = bool(self.features & {"lies", "declined"})
        self.time = 0.0
        super().__init__(
            *self.nodes.first(),
            *(self.disks.facts() if "disks" in self.features else ()),
            *self.gangs.queues(),
            patience_s=dice.choice((0.0, 60.0, 600.0)),
            min_runtime_s=dice.choice((0.0, 0.0, 20.0)),
            preempt_across=dice.choice(("none", "namespaces", "queues")),  # type: ignore[arg-type]  # no number
            reserve_after_s=dice.choice((0.0, 0.0, 30.0)),
            reserve_idle=dice.choice((0.0, 0.5, 1.0)),
            placement=dice.choice(("pack", "pack", "spread")),  # type: ignore[arg-type]
            half_life_s=dice.choice((0.0, USAGE_HALF_LIFE_S, 100.0)),
        )

    @staticmethod
    def drawn(seed: int) -> frozenset[str]:
        """The features of a day."""
        dice = random.Random(f"features {seed}")
        found = frozenset(each for each in EVERY if dice.random() < 0.25)
        if dice.random() < 0.5:
            found |= {"urgent"}
        if found & REPORTED or dice.random() < 0.3:
            found |= {"reports"}
        if found & set(QUEUES) and dice.random() < 0.8:
            found |= {"queues", "deserved"}
        return found

    def live(self) -> "MixedDay":
        dice = self.dice
        for number in range(ARRIVALS):
            self.time += dice.choice((1.0, 5.0, 30.0))
            self.lasts[f"j{number}"] = dice.choice((10.0, 60.0, 300.0))
            facts = self.gangs.arrival(number, self.time)
            self.groups |= {fact.name: fact for fact in facts if isinstance(fact, GangSeen)}
            facts += [*self.weather(), *self.gangs.queue_change(), *self.events(number)]
            self.step(self.time, *facts)
        for _ in range(AFTERWARDS):  # those that wait have their turn as others end
            self.time += dice.choice((1.0, 30.0))
            self.step(self.time, *self.events(0))
        return self

    def step(self, now: float, *facts: Fact) -> list[str]:
        ended = [self.running[uid] for uid, end in self.ends.items() if end <= now]
        cleared = [
            fact for pod in ended for claim in pod.claims for fact in self.disks.cleared(claim)
        ]
        return super().step(now, *facts, *cleared)

    def weather(self) -> list[Fact]:
        facts = self.nodes.weather()
        for fact in facts:
            if isinstance(fact, NodeGone):
                facts = [
                    *facts,
                    *self.lose([p for p in self.running.values() if p.node == fact.name]),
                ]
        if "reports" in self.features and self.dice.random() < 0.6:
            name = self.dice.choice(self.nodes.names)
            if name not in self.nodes.away:
                facts.append(self.nodes.report(name, self.grants(name)))
        return facts

    def lose(self, pods: list[PodSeen]) -> list[Fact]:
        facts: list[Fact] = []
        for pod in pods:
            self.running.pop(pod.uid)
            self.ends.pop(pod.uid, None)
            self.leaving.pop(pod.uid, None)
            facts.append(PodGone(pod.uid))
            if pod.ours and self.dice.random() < 0.7:
                facts.append(self._again(pod))
        return facts

    def told_anew(self) -> list[Fact]:
        """Agents have reported all that kubelets gave."""
        facts: list[Fact] = [
            fact for fact in super().told_anew() if not isinstance(fact, NodeReported)
        ]
        there = [name for name in self.nodes.names if name not in self.nodes.away]
        if "reports" in self.features:
            facts += [self.nodes.report(name, self.all_grants(name)) for name in there]
        return facts

    def grants(self, name: str) -> tuple[Grant, ...]:
        """As an agent reports them, some late, and perhaps not what was planned."""
        every = self.all_grants(name, lies="lies" in self.features)
        return tuple(each for each in every if self.dice.random() < 0.8)

    def all_grants(self, name: str, *, lies: bool = False) -> tuple[Grant, ...]:
        found = []
        for uid, mask in self.held.items():
            pod = self.running.get(uid)
            if pod is None or pod.node != name or not mask:
                continue
            gpus = list(indices_of(mask))
            if lies and self.dice.random() < 0.2:
                gpus = self.dice.sample(range(4), min(4, len(gpus)))
            if share := pod.spec.request(GPU_SHARE):
                grant = factories.grant_part(pod.name, gpus[0], share)
            else:
                grant = factories.grant(pod.name, *gpus)
            found.append(replace(grant, namespace=pod.namespace))
        return tuple(found)

    def events(self, number: int) -> list[Fact]:
        has, dice, facts = self.features, self.dice, list[Fact]()
        if "budgets" in has and dice.random() < 0.25:
            app = dice.choice("xyz")
            gone = dice.random() < 0.2
            facts.append(
                BudgetGone("ns", f"keep-{app}")
                if gone
                else factories.budget(app, dice.randint(0, 2))
            )
        if "others" in has and dice.random() < 0.3:
            node = dice.choice(self.nodes.names)
            if node not in self.nodes.away:
                facts.append(
                    factories.pod(
                        f"o{number}", dice.choice((0, 1)), node=node, phase="Running", ours=False
                    )
                )
        there = [pod for pod in self.running.values() if pod.ours and not pod.deleting]
        if there and "deletes" in has and dice.random() < 0.3:
            facts += self.lose([dice.choice(there)])
        elif there and "fails" in has and dice.random() < 0.3:
            if (pod := dice.choice(there)).node:
                self.ends.pop(pod.uid, None)
                self.running.pop(pod.uid)
                facts.append(replace(pod, phase="Failed"))
        elif there and "resizes" in has and dice.random() < 0.3:
            pod = dice.choice(there)
            cpu = dice.choice((50, 100, 2_000))
            requests = tuple(sorted({**dict(pod.spec.requests), "cpu": cpu}.items()))
            facts.append(replace(pod, spec=replace(pod.spec, requests=requests)))
        elif there and "gates" in has and dice.random() < 0.6:
            facts += [replace(pod, gated=False) for pod in there if pod.gated]
        elif there and "changes" in has and dice.random() < 0.4:
            facts += self._changed(dice.choice(there))
        if self.groups and "drops" in has and dice.random() < 0.1:
            name = dice.choice(sorted(self.groups))
            group = self.groups.pop(name)
            facts.append(GangGone(group.namespace, name))
        return facts

    def _changed(self, pod: PodSeen) -> list[Fact]:
        dice = self.dice
        group = self.groups.get(pod.gang)
        kind = dice.choice(("priority", "minimum", "queue", "level", "pod"))
        if kind == "pod" or group is None:
            return [replace(pod, priority=dice.choice((0, 3, 5)), movable=dice.random() < 0.5)]
        if kind == "priority":
            group = replace(group, priority=dice.choice((0, 3, 5)))
        elif kind == "minimum":
            group = replace(group, min_member=dice.randint(1, 4))
        elif kind == "queue":
            group = replace(group, queue=dice.choice(("default", "a", "b1")))
        else:
            group = replace(group, topology_required=dice.choice(("", "node", "lockstep.dev/rack")))
        self.groups[pod.gang] = group
        return [group]

    def _apply(self, decision: Decision, now: float) -> str:
        if isinstance(decision, Bind):
            if "declined" in self.features and self.dice.random() < 0.1:
                apply(
                    self.cluster,
                    BindFailed(decision.pod, decision.node, "no luck", self.dice.random() < 0.3),
                )
                return ""
            self.held[decision.pod] = decision.gpus
            for claim, disk in decision.claims:
                given = self.disks.given(claim, disk, decision.node)
                self._remember(given)
                for fact in given:
                    apply(self.cluster, fact)
        return super()._apply(decision, now)

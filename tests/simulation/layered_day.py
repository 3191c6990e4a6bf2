"""A seeded day of gangs with layers of subgroups on a cluster of blocks and racks: members are lost one by one, nodes
are cordoned, vanish and move to other racks, so that gangs run in part, and in places where they could not start
again."""

import random
from collections import Counter
from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import (
    BindDone,
    EvictDone,
    Fact,
    GangGone,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    SubGroupLayer,
    SubGroups,
)
from central.scheduler.cycle import schedule_once
from protos.names import BLOCK, RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.simulation.busy_day import HALVES
from tests.simulation.reason_checker import assert_reasons_true

GROUP, INNER, RING = "replica", "stage", "ring"
STEPS = 40
LAYERS = (
    (),
    (SubGroupLayer((GROUP,), RACK),),
    (SubGroupLayer((GROUP,), BLOCK),),
    (SubGroupLayer((), BLOCK),),
    (SubGroupLayer((GROUP,), BLOCK), SubGroupLayer((GROUP, INNER), RACK)),
    (SubGroupLayer((), BLOCK), SubGroupLayer((GROUP,), RACK)),
)


class LayeredDay:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = new_scheduler(factories.LEVELS)
        self.nodes = {f"n{i}": self._node(i) for i in range(9)}
        self.pods: dict[str, PodSeen] = {}
        self.later: list[PodSeen] = []  # lost, and made again in the next step
        self.gangs = 0
        self.said: Counter[str] = Counter()  # reasons, without their numbers

    def _node(self, index: int) -> NodeSeen:
        rack = f"r{index // 2}" if index < 8 else ""  # the last one is in no rack
        return factories.node(
            f"n{index}",
            rack=rack,
            block=f"b{index // 4}" if rack else "",
            gpus=8,
            cpu=self.dice.choice((1_000, 64_000)),
        )

    def run(self) -> None:
        facts: list[Fact] = [*self.nodes.values()]
        facts += [factories.report(name, factories.topology(8, HALVES)) for name in self.nodes]
        for now in range(STEPS):
            facts += self._remade() + self._weather() + self._losses() + self._arrival(now)
            while facts:
                decisions = schedule_once(self.cluster, facts, float(now))
                check_invariants(self.cluster)
                assert_reasons_true(self.cluster)
                for gang in self.cluster.state.pending.waiting.values():
                    self.said[gang.attempt.reason] += 1
                self.after_cycle()
                facts = [fact for each in decisions for fact in self._consequence(each, now)]

    def after_cycle(self) -> None:
        """What else a test looks at."""

    def _arrival(self, now: int) -> list[Fact]:
        if self.dice.random() < 0.4:
            return []
        self.gangs += 1
        name, draw = f"g{self.gangs}", self.dice.choice
        inner, rings, size = draw((1, 1, 2)), draw((1, 2)), draw((1, 2, 3))
        groups, gpus, layers = draw((1, 2, 2)), draw((1, 2, 2, 4, 8)), draw(LAYERS)
        level = draw(("", "node", "node", RACK) if gpus * size <= 8 else ("", RACK))
        level = "island" if gpus * size <= 4 and draw((False, False, True)) else level
        every = groups * inner * rings * size
        policies: tuple[SubGroups, ...] = (
            SubGroups("all", size, 0, (), (GROUP, INNER, RING), level, layers=layers),
        )
        if draw((True, False, False)):  # no subgroups at all
            policies = ()
        facts: list[Fact] = [
            factories.gang(
                name,
                draw((every, every, max(size, every // 2))),
                created=float(now),
                topology_required=draw(("", "", BLOCK, RACK, "node" if every * gpus <= 8 else "")),
                subgroups=policies,
            )
        ]
        unlike = draw((False, False, True))  # then the second group asks for other pods
        for index in range(every):
            ring = index // size
            group = ring // (rings * inner)
            labels = ((GROUP, f"{group}"), (INNER, f"{group}-{ring // rings}"), (RING, f"{ring}"))
            pod = factories.pod(
                f"{name}-{index}",
                max(1, gpus // 2) if unlike and group else gpus,
                gang=name,
                labels=labels,
                created=float(now),
                priority=draw((0, 0, 0, 5)) if not index else 0,
            )
            self.pods[pod.uid] = pod
            facts.append(pod)
        return facts

    def _remade(self) -> list[Fact]:
        made, self.later = self.later, []
        self.pods |= {pod.uid: pod for pod in made}
        return [*made]

    def _weather(self) -> list[Fact]:
        facts: list[Fact] = []
        name = self.dice.choice(sorted(self.nodes))
        node, kind = self.nodes[name], self.dice.random()
        if kind < 0.1:
            node = replace(node, unschedulable=not node.unschedulable)
        elif kind < 0.2:  # it moves to another rack, perhaps of the other block, or out of all
            number = self.dice.randrange(5)
            rack = f"r{number}" if number < 4 else ""
            node = factories.node(
                name, rack=rack, block=rack and f"b{number // 2}", cpu=node.allocatable["cpu"]
            )
        elif kind < 0.25:
            lost = [pod for pod in self.pods.values() if pod.node == name]
            facts = [NodeGone(name), *(fact for pod in lost for fact in self._lose(pod))]
        else:
            return []
        self.nodes[name] = node
        return [*facts, node]

    def _losses(self) -> list[Fact]:
        """Single members are lost and made again; whole gangs end."""
        facts: list[Fact] = []
        running = sorted(pod.uid for pod in self.pods.values() if pod.node)
        for uid in self.dice.sample(running, min(len(running), self.dice.choice((0, 1, 2)))):
            facts += self._lose(self.pods[uid])
        gangs = sorted({pod.gang for pod in self.pods.values()})
        if gangs and self.dice.random() < 0.25:
            over = self.dice.choice(gangs)
            for pod in [pod for pod in self.pods.values() if pod.gang == over]:
                facts.append(PodGone(self.pods.pop(pod.uid).uid))
            self.later = [pod for pod in self.later if pod.gang != over]
            facts.append(GangGone("ns", over))
        return facts

    def _lose(self, pod: PodSeen) -> list[Fact]:
        fresh = replace(self.pods.pop(pod.uid), uid=pod.uid + "'", node="", phase="Pending")
        self.later.append(fresh)
        return [PodGone(pod.uid)]

    def _consequence(self, decision: Decision, now: int) -> list[Fact]:
        match decision:
            case Bind():
                pod = replace(self.pods[decision.pod], node=decision.node, phase="Running")
                self.pods[pod.uid] = pod
                return [BindDone(decision.pod, decision.node), pod]
            case Evict():
                if decision.trial or decision.pod not in self.pods:
                    return [EvictDone(decision.pod, trial=decision.trial)]
                return [EvictDone(decision.pod), *self._lose(self.pods[decision.pod])]
            case _:
                return []

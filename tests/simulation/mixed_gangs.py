"""Gangs and queues of a mixed day, drawn by its dice from the features that it has."""

import random
from collections.abc import Collection
from dataclasses import replace

from central.model.facts import (
    Fact,
    GangSeen,
    LaterRole,
    PodSeen,
    QueueAccess,
    QueueGone,
    QueueSeen,
    Roles,
    SubGroupLayer,
    SubGroups,
    Toleration,
)
from protos.names import BLOCK, GPU, RACK
from tests.central import factories
from tests.central.scheduler.small_cluster import job
from tests.simulation import drawn_gangs
from tests.simulation.local_disks import LocalDisks

TF = Roles(near=(("ps", "worker"),), apart=(("ps", "ps"),))
QUEUES = ("org", "a", "b", "b1", "default")
PARENTS = {"a": "org", "b": "org", "b1": "b"}


class MixedGangs:
    def __init__(self, dice: random.Random, features: Collection[str], disks: LocalDisks) -> None:
        self.dice, self.features, self.disks = dice, features, disks
        self.day = dice.random()

    def arrival(self, number: int, now: float) -> list[Fact]:
        has, dice = self.features, self.dice
        name, size = f"j{number}", dice.choice((1, 1, 2, 2, 4))
        gpus = dice.choice((0, 1, 2, 4, 8))
        least = dice.randint(1, size) if "surplus" in has else size
        group = self._group(size, gpus, least)
        facts = job(
            name,
            size,
            gpus,
            created=now,
            least=least,
            runs_for_s=dice.choice((None, 30.0, 200.0)),
            labels=(("app", dice.choice("xyz")),),
            **self._of_pods(),
            **group,
        )
        facts[1:] = [self._member(i, pod, now) for i, pod in enumerate(facts[1:])]  # type: ignore[arg-type]
        if "disks" in has and not group.get("subgroups") and dice.random() < 0.4:
            facts = [self._stores(fact) for fact in facts]
            facts = [
                *(self.disks.claim(fact.name) for fact in facts if isinstance(fact, PodSeen)),
                *facts,
            ]
        if "namespaces" in has and not any(getattr(fact, "claims", ()) for fact in facts):
            namespace = dice.choice(("ns", "far"))
            facts = [_in_namespace(fact, namespace) for fact in facts]
        if size == 1 and "singles" in has and dice.random() < 0.6:
            queue = str(group.get("queue", ""))
            facts = [
                replace(fact, gang="", queue=queue) if isinstance(fact, PodSeen) else fact
                for fact in facts
                if not isinstance(fact, GangSeen)
            ]
        return facts

    def _of_pods(self) -> dict[str, object]:
        has, dice = self.features, self.dice
        found: dict[str, object] = {}
        if "protected" in has:
            found["preemptable"] = dice.choice((None, None, False, True))
            found["cooldown_s"] = dice.choice((0.0, 0.0, 15.0))
        if "never" in has:
            found["preempts"] = dice.random() < 0.6
        if "moving" in has:
            found["movable"] = dice.random() < 0.5
        return found

    def _group(self, size: int, gpus: int, least: int) -> dict[str, object]:
        has, dice = self.features, self.dice
        found: dict[str, object] = {}
        if "urgent" in has:
            found["priority"] = dice.choice((0, 0, 3, 5))
        if "queues" in has:
            found["queue"] = dice.choice(("", "a", "b1", "b1", "default", "later"))
        if "levels" in has:
            levels = ["", "", "node"] + ([] if "trees" in has else [BLOCK, RACK])
            if gpus and size * gpus <= 8:
                levels += ["island", "numa", "pcie-switch"]
            found["topology_required"] = dice.choice(levels)
            found["topology_preferred"] = "" if "trees" in has else dice.choice(("", RACK, BLOCK))
        if "tiers" in has:
            found["required_tier"] = dice.choice((None, 0, 1, 2, 3))
            found["preferred_tier"] = dice.choice((None, 1, 2))
        if "placements" in has:
            found["placement"] = dice.choice(("", "spread", "balance"))
        if "subgroups" in has and size % 2 == 0:
            narrow = "island" if gpus and gpus <= 2 else "node"
            level = dice.choice(("", "node", narrow, *(() if "trees" in has else (RACK,))))
            tier = dice.choice((None, 0, 1)) if "tiers" in has else None
            one_rack = dice.random() < 0.3 and "trees" not in has
            layers = (SubGroupLayer((), RACK),) if one_rack else ()
            found["subgroups"] = (
                SubGroups(
                    "pair",
                    2,
                    dice.randint(0, 1),
                    (),
                    ("ring",),
                    "" if tier is not None else level,
                    tier,
                    layers,
                ),
            )
        if "roles" in has:
            found["roles"] = dice.choice((None, TF))
            found["task_min"] = dice.choice(((), (("worker", 1),), (("ps", 1), ("worker", 1))))
        if "later" in has and size > 2:
            found["later"] = (LaterRole("worker", dice.randint(1, 2), ("ps",)),)
            found["declared"] = True
        if "whole" in has:
            found["evicted_whole"] = dice.random() < 0.5
        if "resources" in has and gpus:
            found["min_resources"] = dice.choice(((), ((GPU, size * gpus),)))
        return found

    def _member(self, index: int, pod: PodSeen, now: float) -> PodSeen:
        has, dice = self.features, self.dice
        labels = (*pod.labels, ("ring", str(index // 2)))
        pod = replace(pod, labels=labels, task="worker" if index % 3 else "ps", created=now)
        if "users" in has:
            pod = replace(pod, user=dice.choice(("u", "v")), service_account=dice.choice(("", "s")))
        if "gates" in has:
            pod = replace(pod, gated=dice.random() < 0.2)
        alike = self.day if "unlike" not in has else dice.random()
        seed = random.Random(f"{pod.gang} {alike}")  # equal for all pods that are alike
        gpus = pod.spec.request(GPU)
        if "shares" in has and gpus < 4 and seed.random() < 0.5:
            pod = replace(pod, spec=factories.part("of", seed.choice((15, 40, 70))).spec)
        elif "slices" in has and seed.random() < 0.3:
            bare = replace(pod, spec=factories.spec())
            pod = factories.slicer(bare, seed.choice((1, 3)))
        if "rules" in has and seed.random() < 0.4:
            app = dict(pod.labels)["app"]
            rules = drawn_gangs.rules(seed, app, 4)
            pod = replace(pod, spec=replace(pod.spec, rules=rules))
        if "models" in has and seed.random() < 0.5:
            pod = factories.of_kind(pod, seed.choice((("test",), ("other*",), ("test", "other*"))))
        if "nics" in has:
            pod = factories.wishing(pod, seed.choice((0, -1, 4, 10)))
        if "taints" in has and seed.random() < 0.4:
            every = Toleration("job", "Exists", "", seed.choice(("", "NoSchedule", "NoExecute")))
            pod = replace(pod, spec=replace(pod.spec, tolerations=(every,)))
        if "selectors" in has and seed.random() < 0.3:
            pod = replace(
                pod, spec=replace(pod.spec, node_selector=((RACK, seed.choice(("r0", "r1"))),))
            )
        return pod

    def _stores(self, fact: Fact) -> Fact:
        return replace(fact, claims=(fact.name,)) if isinstance(fact, PodSeen) else fact

    def queues(self) -> list[Fact]:
        if "queues" not in self.features:
            return []
        return [self._queue(name) for name in QUEUES]

    def queue_change(self) -> list[Fact]:
        if "queues" not in self.features or self.dice.random() > 0.25:
            return []
        name = self.dice.choice((*QUEUES, "later"))
        return [QueueGone(name) if self.dice.random() < 0.15 else self._queue(name)]

    def _queue(self, name: str) -> QueueSeen:
        has, dice = self.features, self.dice
        kind = dice.choice((GPU, GPU, "cpu"))
        unit = 1 if kind == GPU else 100

        def amounts(*choices: int) -> tuple[tuple[str, int], ...]:
            value = dice.choice(choices)
            return ((kind, value * unit),) if value >= 0 else ()

        queue = QueueSeen(
            name,
            weight=dice.randint(1, 3),
            parent=PARENTS.get(name, "") if dice.random() < 0.97 else dice.choice(("", "org", "a")),
            uid=f"uid-{name}",
            reclaimable=dice.random() < 0.8,
        )
        if "deserved" in has:
            queue = replace(queue, deserved=amounts(-1, 0, 4, 8, 16))
        if "guarantee" in has:
            queue = replace(queue, guarantee=amounts(-1, -1, 4, 8))
        if "capability" in has:
            queue = replace(queue, capability=amounts(-1, -1, 8, 16, 24))
        if "borrowing" in has:
            queue = replace(
                queue, borrowing_limit=amounts(-1, 0, 4), lending_limit=amounts(-1, 0, 4)
            )
        if "tenants" in has:
            queue = replace(
                queue,
                running_gangs=dice.choice((None, None, 1, 3)),
                namespace_gangs=dice.choice((None, 1, 2)),
                namespace_amounts=amounts(-1, -1, 8),
                user_gangs=dice.choice((None, None, 1)),
                user_amounts=amounts(-1, -1, 8),
            )
        if "fifo" in has:
            queue = replace(queue, fifo=dice.random() < 0.4, reserves=dice.random() < 0.7)
        if "closing" in has:
            access = QueueAccess(dice.choice((("ns",), ("far",), ("ns", "far"))))
            queue = replace(
                queue,
                closed=dice.random() < 0.05,
                error="spec.weight: 0" if dice.random() < 0.05 else "",
                access=dice.choice((None, None, access)),
                priority=dice.choice((0, 0, 1)),
            )
        if "aged" in has:
            queue = replace(queue, min_runtime_s=dice.choice((None, 0.0, 20.0)))
        return queue


def _in_namespace(fact: Fact, namespace: str) -> Fact:
    match fact:
        case PodSeen() | GangSeen():
            return replace(fact, namespace=namespace)
        case _:
            return fact

"""A seeded day of a small cluster: gangs arrive, nodes vanish, bindings fail, kubelets give other
GPUs than planned, agents fall silent. Every step checks the scheduler's invariants and the oracle."""

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from central.controllers.composite import new_scheduler
from central.model.decisions import (
    Bind,
    Create,
    Decision,
    Delete,
    EmitWarning,
    Evict,
    Patch,
    SetSize,
    SetStatus,
    UpdateGangStatus,
)
from central.model.facts import (
    Answered,
    BindDone,
    BindFailed,
    EvictDone,
    Fact,
    NodeGone,
    NodeSilent,
    PodGone,
    PodSeen,
    QueueSeen,
    Roles,
)
from central.scheduler.cycle import schedule_once
from protos.gpu_sharing import RANKS
from protos.names import GPU, GPU_SHARE, RACK, RDMA
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.effort import ALL_SEEDS
from tests.simulation import drawn_gangs
from tests.simulation.local_disks import LocalDisks
from tests.simulation.placement_oracle import (
    assert_sound,
    assert_the_ended_stay,
    assert_within_budgets,
)
from tests.simulation.reason_checker import assert_reasons_true

LATEST = 1500
VIEWS_CHECKED = 8  # one of so many pod classes has its cached capacities recounted in each cycle
HEALING_STEP = 3  # without faults fewer steps exercise as much
TF = Roles(near=(("ps", "worker"),), apart=(("ps", "ps"),))
CARD, OWN = 40, 6  # handles of a network card, and of a pod that wishes none
HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))
SLICES = 7  # of a ninth GPU of each node
SURE = ("mps",) * 4 + ("watch",) * 4  # how caps of memory hold, by GPU


class Size(NamedTuple):
    """A day's nodes, and the seconds until which gangs arrive and things break."""

    nodes: int
    arrivals_end: int
    faults_end: int


LONG = Size(nodes=8, arrivals_end=150, faults_end=200)
SHORT = Size(nodes=6, arrivals_end=60, faults_end=90)  # a fifth of the work
TODAYS = LONG if ALL_SEEDS else SHORT  # of tests that live a day or two; make nightly has thousands


class Day:
    """The world around one cluster: what it asks for comes to pass, or does not."""

    def __init__(self, seed: int, size: Size = LONG) -> None:
        self.dice = random.Random(seed)
        self.size = size
        self.cycles = 0
        self.cluster = new_scheduler(factories.LEVELS)
        self.names = [f"n{i}" for i in range(size.nodes)]
        self.up: set[str] = set()
        self.pods: dict[str, PodSeen] = {}
        self.held: dict[str, tuple[int, ...]] = {}  # GPUs by pod uid: the kubelets' truth
        self.cards: dict[str, int] = {}  # network cards by pod uid, likewise
        self.odd: set[str] = set()  # nodes where a pod was given another card than planned
        self.ends: dict[str, int] = {}
        self.remade: dict[int, list[PodSeen]] = {}  # by the time they are made again
        self.now = 0
        self.budgets: dict[str, int] = {}  # by gang: how many of it may be missing
        self.told: dict[str, int] = {}  # what their statuses say
        self.divided: dict[str, int] = {}  # MIG slices by node, where there are fewer
        self.generation = 0
        self.gangs = 0
        self.seen: Counter[str] = Counter()
        self.trace: list[Decision] = []
        self.disks = LocalDisks(self.names)
        self.unlucky: set[str] = set()  # pods whose next binding fails for good

    def step(self, now: int, faults: bool) -> None:
        self.now = now
        facts = [*self._arrivals(now), *self._endings(now), *self._weather(faults)]
        facts += self._queues(now, faults)
        facts += self._budgets(faults)
        facts += self.disks.facts() if now == 0 else ()
        if self.dice.random() < 0.7:
            facts += self._reports()
        facts = self._interleaved(facts)
        while True:
            decisions = self.schedule(facts, float(now))
            self.cycles += 1
            views = slice(self.cycles % VIEWS_CHECKED, None, VIEWS_CHECKED)
            check_invariants(self.cluster, views)
            self.check_reasons()
            assert_sound(self.cluster, decisions)
            self.seen["reserved"] += len(self.cluster.reservations)
            self.seen["made room"] += sum(
                kept.by_eviction for kept in self.cluster.reservations.values()
            )
            self.trace += decisions
            assert_within_budgets(self.cluster, decisions)
            assert_the_ended_stay(self.cluster, decisions)
            facts = [fact for decision in decisions for fact in self._consequence(decision, faults)]
            self._exclusive()
            self._limits_kept()
            if not facts:
                return

    def schedule(self, facts: list[Fact], now: float) -> list[Decision]:
        """One cycle; other days do it otherwise."""
        return schedule_once(self.cluster, facts, now)

    def check_reasons(self) -> None:
        assert_reasons_true(self.cluster)

    def _interleaved(self, facts: list[Fact]) -> list[Fact]:
        """Each kind comes in its own order, as from its own watch; the kinds in any."""
        kinds: dict[str, list[Fact]] = {}
        for fact in reversed(facts):
            kind = type(fact).__name__.removesuffix("Gone").removesuffix("Seen")
            kinds.setdefault(kind, []).append(fact)
        order = [kind for kind, queue in kinds.items() for _ in queue]
        self.dice.shuffle(order)
        return [kinds[kind].pop() for kind in order]

    def _arrivals(self, now: int) -> list[Fact]:
        facts: list[Fact] = []
        for pod in [pod for at in sorted(self.remade) if at <= now for pod in self.remade.pop(at)]:
            self.pods[pod.uid] = pod
            facts.append(pod)
        if now < self.size.arrivals_end and self.dice.random() < 0.35:
            self.gangs += 1
            name, size = f"g{self.gangs}", self.dice.choice((1, 2, 4, 6, 12))
            gpus = self.dice.choice((1, 2, 4, 8) if size < 6 else (1, 2, 4))
            level = self.dice.choice(("", "", RACK, "node", "island")) if size * gpus <= 4 else ""
            urgent = self.dice.choice((0, 0, 0, 5))
            says = self.dice.choice((None, 40.0, 80.0))  # some of it is a lie
            minimum = self.dice.choice((size, max(1, size // 2)))
            queue = self.dice.choice(("default", "default", "a", "b", "later"))
            subgroups = drawn_gangs.subgroups(self.dice, size, gpus)
            self.seen["subgroups"] += bool(subgroups)
            roles = TF if self.dice.random() < 0.3 else None
            self.seen["roles"] += roles is not None
            facts.append(
                factories.gang(
                    name,
                    minimum,
                    created=float(now),
                    topology_required=level,
                    queue=queue,
                    subgroups=subgroups,
                    roles=roles,
                )
            )
            plain = not level and not subgroups
            rules = drawn_gangs.rules(self.dice, name, size * gpus) if plain else None
            self.seen["rules"] += rules is not None
            movable = self.dice.random() < 0.3
            part = gpus < 4
            share = self.dice.choice((0, 15, 40, 70)) if part else 0
            if self.dice.random() < 0.25:
                self.budgets[name] = self.dice.choice((0, 1, size))
            slices = (
                self.dice.choice((0, 0, 0, 1, 3))
                if size <= 4 and not level and not subgroups
                else 0
            )
            share, gpus = (0, 0) if slices else (share, gpus)
            handles = (0, -1, 4, 16)[int(name[1:]) % 4]
            sure = ("none", "mps", "watch")[int(name[1:]) % 3]
            stores = not level and not subgroups and rules is None and not int(name[1:]) % 3
            for rank in range(size):
                labels = (("app", name), ("ring", str(rank // 2)))
                made = (
                    partial(factories.part, share=share)
                    if share
                    else partial(factories.pod, gpus=gpus)
                )
                pod = made(
                    f"{name}-{rank}",
                    gang=name,
                    rules=rules,
                    labels=labels,
                    created=float(now),
                    priority=urgent,
                    runs_for_s=says,
                    movable=movable,
                    task="worker" if rank % 3 else "ps",
                )
                pod = factories.wishing(pod, handles)
                pod = factories.sure(pod, sure) if share else pod
                if stores:
                    pod = replace(pod, claims=(pod.name,))
                    facts.append(self.disks.claim(pod.name))
                pod = factories.slicer(pod, slices) if slices else pod
                self.pods[pod.uid] = pod
                facts.append(pod)
        return facts

    def _budgets(self, faults: bool) -> list[Fact]:
        """Their controller looks again, sometimes late."""
        facts: list[Fact] = []
        for app in self.budgets:
            allowed = self._allowed(app)
            if allowed != self.told.get(app) and not (faults and self.dice.random() < 0.3):
                self.told[app] = allowed
                facts.append(factories.budget(app, allowed))
        return facts

    def _allowed(self, app: str) -> int:
        here = [pod for pod in self.pods.values() if pod.gang == app and pod.phase != "Succeeded"]
        running = sum(pod.phase == "Running" for pod in here)
        return max(0, running - (len(here) - self.budgets[app]))

    def _queues(self, now: int, faults: bool) -> list[Fact]:
        """The first come after a while, people change them, and in the end all may run."""
        if now == self.size.faults_end:
            return [QueueSeen("org"), *(QueueSeen(n, parent="org") for n in ("a", "b", "later"))]
        if now < 20 or not faults or self.dice.random() > 0.1:
            return []
        self.seen["queue changed"] += 1
        return [drawn_gangs.queue_change(self.dice)]

    def _endings(self, now: int) -> list[Fact]:
        facts: list[Fact] = []
        for uid in [uid for uid, end in self.ends.items() if end <= now]:
            del self.ends[uid]
            self.held.pop(uid, None)
            self.cards.pop(uid, None)
            pod = self.pods[uid] = replace(self.pods[uid], phase="Succeeded")
            facts.append(pod)
            for claim in pod.claims:
                facts += self.disks.cleared(claim)
        return facts

    def _weather(self, faults: bool) -> list[Fact]:
        facts: list[Fact] = []
        for name in self.names:
            if name not in self.up and (not faults or self.dice.random() < 0.3):
                self.up.add(name)
                rack = f"r{int(name[1]) // 4}"
                facts += [
                    factories.node(name, rack=rack, shares=True, slices=SLICES),
                    self._report(name),
                ]
            elif faults and name in self.up and self.dice.random() < 0.01:
                self.up.discard(name)
                self.seen["node lost"] += 1
                facts += [NodeGone(name), *self._lost_with(name)]
            elif faults and self.dice.random() < 0.01:
                facts.append(NodeSilent(name))
            elif name in self.divided or (faults and self.dice.random() < 0.03):
                facts += self._divide(name, faults)
        return facts

    def _divide(self, name: str, faults: bool) -> list[Fact]:
        """A GPU in MIG mode is divided otherwise: its agent tells at once, the API server later."""
        if faults and name not in self.divided:
            self.divided[name] = self.dice.choice((0, 2, 5))
            return [self._report(name)]
        if faults and self.dice.random() < 0.8:
            return []
        self.divided.pop(name)
        return [self._report(name)]

    def _lost_with(self, name: str) -> list[Fact]:
        """Its pods go, and a controller makes them again."""
        facts: list[Fact] = []
        for pod in [pod for pod in self.pods.values() if pod.node == name]:
            facts += [PodGone(pod.uid), self._again(pod)]
        return facts

    def _again(self, pod: PodSeen) -> PodSeen:
        self.pods.pop(pod.uid)
        self.held.pop(pod.uid, None)
        self.cards.pop(pod.uid, None)
        self.ends.pop(pod.uid, None)
        fresh = replace(pod, uid=pod.uid + "'", node="", phase="Pending")
        self.pods[fresh.uid] = fresh
        return fresh

    def _reports(self) -> list[Fact]:
        return [self._report(name) for name in sorted(self.up) if self.dice.random() < 0.5]

    def _report(self, name: str) -> Fact:
        self.generation += 1
        grants = tuple(
            factories.grant_part(pod.name, self.held[uid][0], pod.spec.request(GPU_SHARE))
            if pod.spec.share_containers
            else factories.grant_slices(pod.name, *self.held[uid])
            if pod.spec.request(factories.SLICE)
            else factories.grant(pod.name, *self.held[uid])
            for uid, pod in sorted(self.pods.items())
            if pod.node == name and uid in self.held
        )
        cards = tuple(
            factories.grant_card(self.pods[uid].name, card)
            for uid, card in sorted(self.cards.items())
            if self.pods[uid].node == name
        )
        plain = factories.topology(8, HALVES, shares=True, level=SURE)
        what = factories.carded(factories.sliced(plain, self.divided.get(name, SLICES)), CARD, OWN)
        return factories.report(name, what, self.generation, grants + cards)

    def _consequence(self, decision: Decision, faults: bool) -> list[Fact]:
        match decision:
            case Bind():
                return self._bind(decision, faults)
            case Evict():
                return self._evict(decision)
            case UpdateGangStatus():
                self.seen["waits" if decision.phase == "Pending" else "told"] += 1
                return []
            case EmitWarning():
                self.seen["warned"] += 1
                return []
            case SetStatus():
                self.seen["status"] += 1
                why = "the server is away" if faults and self.dice.random() < 0.3 else ""
                return [Answered("SetStatus", decision.kind, "", decision.name, why=why)]
            case Create() | Delete() | Patch() | SetSize():
                raise AssertionError(f"no Job asked for this: {decision}")

    def _evict(self, evict: Evict) -> list[Fact]:
        pod = self.pods.get(evict.pod)
        if pod is None:
            return [EvictDone(evict.pod, "", evict.trial)]
        self.seen["asked" if evict.trial else "evicted"] += 1
        kept = pod.gang in self.budgets and pod.phase == "Running" and not evict.beyond_budgets
        if kept and not self._allowed(pod.gang):
            self.seen["budget refused"] += 1
            return [EvictDone(evict.pod, "a PodDisruptionBudget forbids the eviction", evict.trial)]
        if evict.trial:
            return [EvictDone(evict.pod, trial=True)]
        return [EvictDone(evict.pod), PodGone(pod.uid), self._again(pod)]

    def _bind(self, bind: Bind, faults: bool) -> list[Fact]:
        facts: list[Fact] = []
        for claim, disk in bind.claims:
            facts += self.disks.given(claim, disk, bind.node)
            self.seen["volumes"] += 1
        return [*facts, *self._bound(bind, faults)]

    def _bound(self, bind: Bind, faults: bool) -> list[Fact]:
        unlucky = bind.name in self.unlucky
        if unlucky or (faults and self.dice.random() < 0.05):
            self.unlucky.discard(bind.name)
            self.seen["bind failed"] += 1
            if not unlucky and self.dice.random() < 0.5:
                return [BindFailed(bind.pod, bind.node, "no luck")]
            # Its controller deleted it meanwhile, and takes its time to make it again.
            fresh = self._again(self.pods[bind.pod])
            del self.pods[fresh.uid]
            self.remade.setdefault(self.now + 45, []).append(fresh)
            return [BindFailed(bind.pod, bind.node, "gone", final=True), PodGone(bind.pod)]
        self.seen["bound"] += 1
        if bind.node not in self.up:
            return [BindFailed(bind.pod, bind.node, "the node is gone")]
        pod = replace(self.pods[bind.pod], node=bind.node, phase="Running")
        if pod.movable:
            pod = replace(pod, started=float(self.now - self.dice.choice((0, 400))))
        self.pods[bind.pod] = pod
        if not self._admit(pod, bind.gpus, faults):
            self.seen["turned away"] += 1
            return [BindDone(bind.pod, bind.node), PodGone(pod.uid), self._again(pod)]
        self.ends[bind.pod] = self.now + self.dice.randint(5, 80)
        return [BindDone(bind.pod, bind.node), pod]

    def _admit(self, pod: PodSeen, planned: int, faults: bool) -> bool:
        """The kubelet gives what was planned, or, with faults, anything that is free. False: another
        has what was planned, and what is left is not as sure as the pod demands."""
        if slices := pod.spec.request(factories.SLICE):
            self._slice(pod, slices)
            if pod.spec.rdma_containers:
                self.cards[pod.uid] = self._card(pod, faults)
            return True
        share = pod.spec.request(GPU_SHARE)
        wanted = 1 if share else pod.spec.request(GPU)
        used: Counter[int] = Counter()
        for uid, gpus in self.held.items():
            if self.pods[uid].node == pod.node and not self.pods[uid].spec.request(factories.SLICE):
                used.update(dict.fromkeys(gpus, self.pods[uid].spec.request(GPU_SHARE) or 100))
        least = RANKS[pod.spec.memory_level]
        self.seen["sure"] += bool(least)
        free = [gpu for gpu in range(8) if used[gpu] + (share or 100) <= 100]
        assert len(free) >= wanted, f"{pod.node} was sold twice: {pod.name} finds {free}"
        free = [gpu for gpu in free if RANKS[SURE[gpu]] >= least]  # the agent gives no other
        if len(free) < wanted:
            return False
        mine = [gpu for gpu in free if planned >> gpu & 1]
        odd = not share  # a share elsewhere opens a GPU too many: the agent would refuse the next
        if len(mine) < wanted or (odd and faults and self.dice.random() < 0.2):
            self.seen["other GPUs"] += 1
            fullest = max(free, key=lambda gpu: used[gpu])  # as agents take it
            others = 0  # what is planned for those who are still to come, agents leave if they can
            for other in self.cluster.state.nodes[pod.node].pods.values():
                others |= 0 if other.seen.uid in (pod.uid, *self.held) else other.gpus
            left = [gpu for gpu in free if not others >> gpu & 1]
            pool = left if len(left) >= wanted else free
            mine = [fullest] if share else self.dice.sample(pool, wanted)
        self.held[pod.uid] = tuple(mine[:wanted])
        if pod.spec.rdma_containers:
            self.cards[pod.uid] = self._card(pod, faults)
        return True

    def _card(self, pod: PodSeen, faults: bool) -> int:
        """As planned; with faults, any. What was planned has room, unless another went elsewhere."""
        plans = [
            plan for plan in self.cluster.state.planned_devices(pod.node) if plan.resource == RDMA
        ]
        planned = next((int(p.device_ids[0][-1]) for p in plans if p.pod == pod.name), 0)
        if faults and self.dice.random() < 0.1:
            self.seen["other card"] += 1
            planned = self.dice.choice((0, 1))
            self.odd.add(pod.node)
        return planned

    def _limits_kept(self) -> None:
        """No card is promised out where all went as planned."""
        sums: Counter[tuple[str, int]] = Counter()
        for uid, card in self.cards.items():
            pod = self.pods[uid]
            wished = dict(pod.spec.rdma_limits).get("hca_handle", OWN)
            sums[pod.node, card] += wished
            self.seen["limits"] += 1
        over = [place for place, count in sums.items() if count > CARD and place[0] not in self.odd]
        assert not over, f"{over} have more than {CARD} handles promised"

    def _slice(self, pod: PodSeen, slices: int) -> None:
        others = [ids for uid, ids in self.held.items() if self._sliced(uid, pod.node)]
        taken = {each for ids in others for each in ids}
        free = [i for i in range(self.divided.get(pod.node, SLICES)) if i not in taken]
        assert len(free) >= slices, f"{pod.node} was sold twice: {pod.name} finds slices {free}"
        self.seen["slices"] += 1
        self.held[pod.uid] = tuple(free[:slices])

    def _sliced(self, uid: str, node: str) -> bool:
        return self.pods[uid].node == node and bool(self.pods[uid].spec.request(factories.SLICE))

    def _exclusive(self) -> None:
        """No GPU of the world is held by two as a whole, nor more of it in shares than there is."""
        holders: Counter[tuple[str, int]] = Counter()
        for uid, gpus in self.held.items():
            if self.pods[uid].spec.request(factories.SLICE):
                continue
            part = self.pods[uid].spec.request(GPU_SHARE)
            self.seen["shares"] += bool(part)
            holders.update({(self.pods[uid].node, gpu): part or 100 for gpu in gpus})
        assert not [place for place, count in holders.items() if count > 100]


def broken(seed: int, size: Size = LONG) -> Day:
    """The first half of a day."""
    day = Day(seed, size)
    for now in range(size.faults_end):
        day.step(now, faults=True)
    return day


def live(seed: int, size: Size = LONG) -> Day:
    """A day that breaks, and heals until every gang had its turn."""
    day = broken(seed, size)
    for now in range(size.faults_end, LATEST, HEALING_STEP):
        day.step(now, faults=False)
        if not day.cluster.state.pending.waiting and not day.ends:
            break
    return day

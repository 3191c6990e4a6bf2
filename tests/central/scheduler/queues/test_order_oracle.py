"""The order between queues against plain loops that compute every level again for each gang."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, PodSeen, QueueSeen
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler import gang_attempt
from central.scheduler.cycle import schedule_once
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.scheduler import Scheduler
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import job

NODES, PODS, NEVER = 16, 110, 9  # nodes, pods of each, GPUs of a pod that no node has
NOWHERE = factories.near("nobody", factories.HOST)  # an affinity that no node meets


@dataclass
class Waiting:
    name: str
    queue: str
    pods: int
    least: int
    gpus: int  # of each pod
    priority: int
    created: float
    lasts_s: float | None
    is_kept_out: bool
    placed: int = 0

    @property
    def fits(self) -> bool:
        return self.gpus < NEVER and not self.is_kept_out

    @property
    def need(self) -> int:
        """GPUs of what it would start with, or of one more pod."""
        return self.gpus * self.next_pods

    @property
    def next_pods(self) -> int:
        return max(self.least - self.placed, 1)

    @property
    def left(self) -> int:
        """GPUs that it still asks for."""
        return self.gpus * (self.pods - self.placed)

    @property
    def rank(self) -> tuple[object, ...]:
        surplus = self.placed - self.least + 1 if self.placed else 0
        return -self.priority, surplus, self.created, self.name

    @property
    def run_time_first(self) -> tuple[object, ...]:
        return (*self.rank[:2], inf if self.lasts_s is None else self.lasts_s, *self.rank[2:])

    @property
    def facts(self) -> list[Fact]:
        of: dict[str, Any] = {"queue": self.queue, "priority": self.priority, "least": self.least}
        made = job(self.name, self.pods, self.gpus, self.lasts_s, created=self.created, **of)
        if not self.is_kept_out:
            return made
        return [
            replace(each, spec=replace(each.spec, rules=NOWHERE))
            if isinstance(each, PodSeen)
            else each
            for each in made
        ]


class Plain:
    """The next gang is always looked for from the root."""

    def __init__(
        self,
        queues: list[QueueSeen],
        waiting: list[Waiting],
        used: dict[str, int],
        shares: dict[str, int],
        *,
        by_past: bool,
    ) -> None:
        """by_past: past use orders queues, and shares bound what their priorities do."""
        self.queues, self.by_past = {queue.name: queue for queue in queues}, by_past
        self.used, self.shares = dict(used), shares
        self.pods_used = dict(used)  # what runs already are pods of one GPU
        self.free = NODES * 8 - sum(used[name] for name in used if name.startswith("q"))
        self.lines: dict[str, list[Waiting]] = {}
        for gang in waiting:
            self.lines.setdefault(gang.queue, []).append(gang)
        self.is_backfill: set[str] = set()
        self.barred = sorted(name for name in self.lines if not name.startswith("q"))
        unlike = len({queue.priority for queue in queues}) > 1
        self.compares = (unlike or not by_past) and len(self.lines) - len(self.barred) > 1
        for name in self.lines:
            self.sort(name)

    def sort(self, queue: str) -> None:
        is_backfill = queue in self.is_backfill
        self.lines[queue].sort(key=lambda g: g.run_time_first if is_backfill else g.rank)

    def order(self) -> Iterator[str]:
        """Gangs of queues that may start nobody come first."""
        for queue in self.barred:
            while self.lines[queue]:
                yield self.refuse(queue)
        while any(self.lines.values()):
            queue = self.next_leaf("")
            excess = self.excess(queue, self.lines[queue][0])
            while self.lines[queue]:
                gang = self.lines[queue][0]
                if self.compares and self.excess(queue, gang) != excess:
                    break
                if gang.fits:
                    yield self.place(queue)
                    break
                yield self.refuse(queue)

    def place(self, queue: str) -> str:
        """The minimum first while others are left, and of a scarce surplus one pod."""
        gang = self.lines[queue].pop(0)
        others = [one for line in self.lines.values() for one in line]
        count = gang.pods - gang.placed
        if others and gang.placed < gang.least:
            count = gang.least
        elif others and gang.left + sum(one.left for one in others) > self.free:
            count = 1
        gang.placed += count
        self.free -= count * gang.gpus
        for name in self.path(queue):
            self.used[name] = self.used.get(name, 0) + count * gang.gpus
            self.pods_used[name] = self.pods_used.get(name, 0) + count
        if gang.placed < gang.pods:
            self.lines[queue].append(gang)
            self.sort(queue)
        return gang.name

    def refuse(self, queue: str) -> str:
        """Behind the first one that is refused those of equal rank go by their run time."""
        gang = self.lines[queue].pop(0)
        self.is_backfill.add(queue)
        self.sort(queue)
        return gang.name

    def path(self, name: str) -> list[str]:
        found = [name]
        while parent := self.queues[found[-1]].parent:
            found.append(parent)
        return found

    def next_leaf(self, below: str) -> str:
        children = [name for name, queue in self.queues.items() if queue.parent == below]
        pending = [name for name in children if self.is_pending(name)]
        return self.next_leaf(min(pending, key=self.level)) if pending else below

    def is_pending(self, name: str) -> bool:
        return any(name in self.path(queue) for queue, line in self.lines.items() if line)

    def level(self, name: str) -> tuple[object, ...]:
        """The documented order: within the share, below the deserved amount, the queue's priority, usage now and
        then, the gang's priority. What a queue has received before its first gang waited gives no credit. By the past: below the deserved amount, the
        queue's priority within the share and the lowest of its siblings above."""
        gang, queue = self.lines[self.next_leaf(name)][0], self.queues[name]
        exceeds = self.compares and self.exceeds(name, gang)
        deserved, used = dict(queue.deserved).get(GPU, 0), self.used.get(name, 0)
        is_rich = not deserved or used >= deserved

        def share(amount: int, pods: int) -> float:
            return self.above(name, amount, pods) if is_rich else amount / deserved

        pods = self.pods_used.get(name, 0)
        levels = share(used, pods), share(used + gang.need, pods + gang.next_pods)
        rank = (-gang.priority, gang.created, name)
        urgency = queue.priority
        if self.by_past and exceeds:
            urgency = min(
                each.priority for each in self.queues.values() if each.parent == queue.parent
            )
        above = exceeds and not self.by_past
        return (above, is_rich, -urgency, *levels, *rank)

    def above(self, name: str, amount: int, pods: int) -> float:
        """The dominant share above the deserved amount, by weight."""
        queue = self.queues[name]
        of_gpus = (amount - dict(queue.deserved).get(GPU, 0)) / (NODES * 8 * queue.weight)
        return max(of_gpus, pods / (NODES * PODS * queue.weight))

    def excess(self, queue: str, gang: Waiting) -> list[bool]:
        return [self.exceeds(name, gang) for name in self.path(queue)]

    def exceeds(self, name: str, gang: Waiting) -> bool:
        return self.used.get(name, 0) + gang.need > self.shares[name]


def drawn(dice: random.Random, *, runs: bool) -> tuple[list[QueueSeen], list[Waiting], list[Fact]]:
    """Departments with queues, or one queue; gangs of which some never fit; what runs already."""
    parents = ["", "d0", "d1", "d0", ""][: dice.randint(1, 5)]
    queues = [QueueSeen(name, weight=dice.randint(1, 3)) for name in ("d0", "d1")]
    for number, parent in enumerate(parents):
        deserved = ((GPU, dice.choice((4, 8, 30))),) if dice.random() < 0.3 else ()
        of: dict[str, Any] = {"weight": dice.randint(1, 3), "deserved": deserved}
        priority = dice.choice((0, 0, 0, 1))
        queues.append(QueueSeen(f"q{number}", parent=parent, priority=priority, **of))
    leaves = [queue.name for queue in queues if queue.name.startswith("q")]
    inner = sorted({*parents} - {""})
    facts: list[Fact] = []
    for number in range(dice.choice((0, 24, 70, 90)) * runs):
        of = {"node": f"n{number % NODES}", "phase": "Running", "queue": dice.choice(leaves)}
        facts.append(factories.pod(f"r{number}", 1, preemptable=False, **of))
    waiting = []
    for number in range(dice.randint(5, 16)):
        least, gpus = dice.randint(1, 2), dice.choice((1, 1, 2, NEVER, NEVER + 1))
        least *= 5 if gpus >= NEVER else 1  # so much is asked for that shares are scarce
        surplus = dice.choice((0, 0, 0, 1, 2)) if gpus == 1 else 0
        created, lasts = float(dice.randint(0, 9)), dice.choice((None, 60.0, 600.0))
        priority, is_out = dice.choice((0, 0, 1)), dice.random() < 0.5
        queue = dice.choice(inner) if inner and dice.random() < 0.1 else dice.choice(leaves)
        of = {"priority": priority, "created": created, "lasts_s": lasts, "is_kept_out": is_out}
        gang = Waiting(f"g{number}", queue, least + surplus, least, gpus, **of)
        waiting.append(gang)
    return queues, waiting, facts


def used_by(scheduler: Scheduler, queues: list[QueueSeen]) -> dict[str, int]:
    return {each.name: scheduler.queues.by_name[each.name].used.get(GPU, 0) for each in queues}


@pytest.mark.parametrize("seed", range(80))
def test_gangs_are_tried_in_the_documented_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs alone decide: nodes have endless processors. With a half-life the past decides, and shares do not."""
    half_life_s, lasted_s = 0.0 if seed % 4 else 600.0, 1000.0 * (seed % 2)
    queues, waiting, running = drawn(random.Random(seed), runs=not half_life_s)
    tried: list[str] = []
    real = gang_attempt.schedule

    def schedule(scheduler: Scheduler, gang: Any, *args: Any, **other: Any) -> None:
        tried.append(gang.name)
        real(scheduler, gang, *args, **other)

    monkeypatch.setattr(gang_attempt, "schedule", schedule)
    made = new_scheduler(factories.LEVELS, half_life_s=half_life_s, reserve_after_s=1e9)
    nodes = [factories.node(f"n{number}", cpu=10**9) for number in range(NODES)]
    schedule_once(made, [*nodes, *queues, *running], 10.0)
    used = used_by(made, queues)
    tried.clear()
    schedule_once(made, [fact for gang in waiting for fact in gang.facts], 10.0 + lasted_s)
    shares = fair_shares(made.queues, GPU_EQUIVALENTS)
    shares = {name: share // GPU_UNITS for name, share in shares.items()}
    rules = Plain(queues, waiting, used, shares, by_past=half_life_s > 0)
    expected = [*rules.order()]
    assert tried[: len(expected)] == expected

"""Seeded stories of the coordinator's core: members whose messages are lost, late, doubled and reordered; plans that
come and go; a coordinator that crashes between any two writes and starts again from what was stored.

The members keep books of their own. They decide what is true: nothing here asks the core what it believes.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from central.controllers.training.generation import (
    MembershipRules,
    NotAllowed,
    Process,
    SizePlan,
    Stale,
)
from central.controllers.training.queue_journal import JournalLimits
from central.controllers.training.stored_state import StoredState
from central.controllers.training.task_queue import LeaseKey
from central.controllers.training.task_source import QueueSettings, TaskSource

MEMBERS, LEAST, TASKS = 5, 2, 12
RULES = MembershipRules(LEAST, MEMBERS, join_wait_s=5, hold_s=5, below_s=1e9, silent_s=8, leave_s=6)
# How changes are stored, by the seed: a snapshot for each, soon, later, or as a coordinator does.
LIMITS = (JournalLimits(0, 0), JournalLimits(8, 3), JournalLimits(100, 40), JournalLimits())


@dataclass
class Member:
    number: int
    incarnation: int = 1
    running: int = 0  # the generation in which it trains; 0: none
    seen: int = 0  # highest generation it was ever told
    step: int = 0
    leases: list[LeaseKey] = field(default_factory=list)
    alive: bool = True


@dataclass
class Books:
    """What the members know to have happened."""

    live: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)  # by number
    leases: dict[tuple[int, int, int], tuple[int, int]] = field(
        default_factory=dict
    )  # their owners
    durable: set[tuple[int, int]] = field(default_factory=set)  # (epoch, task) that was promised
    epoch: int = 0


def result_of(epoch: int, task: int) -> str:
    return f"result of {task} in {epoch}"


class Story:
    def __init__(self, seed: int, *, commit: bool = False) -> None:
        self.random = random.Random(seed)
        self.limits = LIMITS[seed % len(LIMITS)]
        self.replica = 1 + seed // len(LIMITS) % 2
        self.now = 0.0
        self.commit = commit
        self.members = [Member(number) for number in range(MEMBERS)]
        self.books = Books()
        self.stored: dict[str, str] = {}  # JSON, by section
        self.late: list[Callable[[], None]] = []
        self.plans = 0
        self.plan = SizePlan(0, tuple(range(MEMBERS)))
        self.counts: Counter[str] = Counter()
        self.start()

    # -- the coordinator's life

    def start(self) -> None:
        rules = replace(RULES, replica=self.replica)
        self.state = StoredState("ns/train/u", rules, limits=self.limits)
        sections = {name: json.loads(text) for name, text in self.stored.items()}
        self.state.read(sections, self.now)
        self.check_results()
        self.save()
        self.state.membership.set_plan(self.now, self.plan)
        self.state.gpu_time.elapse(self.now, self.state.membership)
        self.advanced_at, self.held_s = self.now, sum(self.state.gpu_time.spent.values())

    def save(self) -> None:
        for name, section in self.state.changes(self.now).items():
            self.stored[name] = json.dumps(section)

    def check_results(self) -> None:
        """What was promised is there after a restart: of the present epoch, and of the one before."""
        queue = self.state.tasks.queues.get("q")
        if queue is None or self.commit:
            return
        for epoch in {queue.epoch, queue.epoch - 1} - {-1, -2}:
            found = {one["task"]: one for one in queue.results_of(epoch, 0, TASKS)["results"]}
            for task in (task for of, task in self.books.durable if of == epoch):
                assert found[task]["result"] == result_of(epoch, task), "a result survives"
                assert task in queue.done or epoch < queue.epoch, "done stays done"

    def crash(self) -> None:
        self.counts["crashes"] += 1
        self.now += self.random.choice((0.0, 1.0, 30.0))
        self.start()

    # -- a step of the story

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now += self.random.choice((0.0, 0.02, 0.1, 0.5))
            chosen = self.random.random()
            if chosen < 0.008:
                self.crash()
            elif chosen < 0.02:
                self.new_plan()
            elif chosen < 0.04:
                self.restart(self.random.choice(self.members))
            elif chosen < 0.10:
                self.save()
            elif self.late and chosen < 0.20:
                self.late.pop(self.random.randrange(len(self.late)))()
            else:
                self.act(self.random.choice(self.members))
            self.advance()

    def advance(self) -> None:
        time, span_s = self.state.gpu_time, self.now - self.advanced_at
        self.held_s += span_s * len(self.state.membership.present())
        self.state.advance(self.now)
        self.advanced_at = self.now
        assert abs(sum(time.spent.values()) + time._open - self.held_s) < 1e-6, "each second once"

    def new_plan(self) -> None:
        self.plans += 1
        size = self.random.randint(LEAST, MEMBERS)
        members = tuple(sorted(self.random.sample(range(MEMBERS), size)))
        self.plan = SizePlan(self.plans, members)
        self.state.membership.set_plan(self.now, self.plan)

    def restart(self, member: Member) -> None:
        member.incarnation += 1
        member.running, member.step, member.alive = 0, 0, True
        member.leases = []
        if self.random.random() < 0.2:
            member.alive = False

    def send(self, message: Callable[[], None]) -> None:
        """Lost, late, doubled, or as it should be."""
        fate = self.random.random()
        if fate < 0.1:
            return
        if fate < 0.2:
            self.late.append(message)
        elif fate < 0.3:
            self.late.append(message)
            message()
        else:
            message()

    # -- members

    def act(self, member: Member) -> None:
        if not member.alive:
            return
        what = self.random.choice((self.poll, self.poll, self.report, self.tasks, self.tasks))
        if self.random.random() < 0.02:
            what = self.ask
        incarnation = member.incarnation
        self.send(lambda: what(member, incarnation))

    def poll(self, member: Member, incarnation: int) -> None:
        members = self.state.membership
        try:
            members.heard(self.now, member.number, incarnation)
            members.raise_number(self.now, member.seen)
        except Stale:
            self.join(member, incarnation)
            return
        self.advance()
        self.save()  # a generation is told when it is stored
        answer = members.answer(self.now, member.number)
        if self.random.random() < 0.1 or incarnation != member.incarnation:
            return  # the answer is lost
        self.learn(member, answer)

    def learn(self, member: Member, answer: dict[str, Any]) -> None:
        number = answer["generation"]
        assert number >= member.seen, "generations are monotone"
        member.seen = number
        mine = any(
            (one["member"], one["incarnation"]) == (member.number, member.incarnation)
            for one in answer["members"]
        )
        if answer["state"] == "live":
            named = tuple((one["member"], one["incarnation"]) for one in answer["members"])
            assert self.books.live.setdefault(number, named) == named, "one number, one membership"
            assert len(named) >= LEAST, "a live generation has at least the least size"
            indices = [number % self.replica for number, _ in named]
            whole = [*range(self.replica)] * (len(named) // self.replica)
            assert indices == whole, "replicas are whole, and in order"
            assert number >= member.running
            member.running = number if mine else 0
            self.counts["live"] += 1
        elif answer["state"] == "proposed" and not answer["acknowledged"]:
            stop = answer["stop_after_step"]
            if member.running and stop is not None:
                member.step = max(member.step, stop)
            step = member.step if member.running else None
            incarnation = member.incarnation
            if mine or member.number in answer["leaving"] + answer["waiting"]:
                self.send(lambda: self.ack(member, incarnation, number, step))

    def ack(self, member: Member, incarnation: int, number: int, step: int | None) -> None:
        try:
            answer = self.state.membership.ack(self.now, member.number, incarnation, number, step)
        except Stale:
            return
        if answer["counted"] and incarnation == member.incarnation and member.seen <= number:
            member.running = 0  # it stopped

    def ask(self, member: Member, incarnation: int) -> None:
        with suppress(Stale):
            self.state.membership.ask(self.now, member.number, incarnation, member.running)

    def join(self, member: Member, incarnation: int) -> None:
        process = Process(member.number, incarnation, f"w{member.number}")
        try:
            self.state.membership.join(self.now, process)
        except Stale:
            assert incarnation < member.incarnation, "the youngest process may always join"

    def report(self, member: Member, incarnation: int) -> None:
        if not member.running or incarnation != member.incarnation:
            return
        member.step += 1
        try:
            self.state.membership.report(
                self.now, member.number, incarnation, member.running, member.step
            )
        except Stale:
            return
        self.state.gpu_time.report(
            self.advanced_at, member.running, member.step, self.state.membership
        )
        self.check_alone(member)

    def check_alone(self, member: Member) -> None:
        """Those whom the coordinator lets step at this time are in one generation."""
        live = self.state.membership.live
        assert live is not None
        assert live.number == member.running, "a step of an old generation is refused"

    # -- tasks

    def tasks(self, member: Member, incarnation: int) -> None:
        if incarnation != member.incarnation:
            return
        queue = self.state.tasks.queues.get("q")
        if queue is None:
            settings = QueueSettings(1, self.commit, 1000, self.random.random() < 0.3)
            self.state.tasks.create("q", settings, TaskSource.of_range(TASKS, 1))
            self.save()
            return
        if not self.state.membership.roster.knows(member.number, incarnation):
            return
        if member.leases and self.random.random() < 0.7:
            self.answer(member, member.leases.pop())
        else:
            self.lease(member, incarnation)

    def lease(self, member: Member, incarnation: int) -> None:
        queue = self.state.tasks["q"]
        owner, epoch = (member.number, incarnation), self.books.epoch
        try:
            answer = queue.lease(self.now, owner, epoch, self.random.randint(1, 3))
        except (Stale, NotAllowed):
            self.books.epoch = max(0, queue.epoch)
            return
        for one in answer["tasks"]:
            key = LeaseKey(owner, epoch, one["task"], one["attempt"])
            known = self.books.leases.setdefault(key[1:], owner)
            assert known == owner, "one owner per task and attempt"
            assert self.commit or (epoch, one["task"]) not in self.books.durable, "done stays done"
            if self.random.random() < 0.9:
                member.leases.append(key)
        if answer["over"]:
            left = {task for task in range(TASKS) if (epoch, task) not in self.books.durable}
            assert self.commit or not left - self.undecided(epoch), "no task is missing"
            self.counts["epochs"] += 1
            self.books.epoch = epoch + 1

    def undecided(self, epoch: int) -> set[int]:
        """Done as the coordinator says, though nobody got the answer."""
        done = self.state.tasks["q"].done if self.state.tasks["q"].epoch == epoch else ()
        return {task for task in range(TASKS) if task in done} if done else set(range(TASKS))

    def answer(self, member: Member, key: LeaseKey) -> None:
        queue = self.state.tasks["q"]
        if self.random.random() < 0.1:
            key = key._replace(attempt=key.attempt + self.random.choice((-1, 1)))
        try:
            if self.random.random() < 0.05:
                queue.fail(key, "a reason")
                return
            if self.random.random() < 0.3:
                queue.progress(self.now, key, self.random.randint(0, 9))
            queue.finish(self.now, key, result_of(key.epoch, key.task))
        except Stale:
            self.counts["stale"] += 1
            return
        known = self.books.leases.get(key[1:])
        if (
            known is None
        ):  # the answer named an attempt of a later epoch, which has ended: nothing changes
            assert key.epoch < queue.epoch, "only a lease's answer counts"
            known = self.books.leases[queue.epoch, key.task, key.attempt]
        assert known == key.owner, "only the owner's answer counts"
        if self.random.random() < 0.02:
            self.crash()  # before it was stored: no answer
            return
        self.save()
        self.books.durable.add((key.epoch, key.task))
        self.counts["done"] += 1

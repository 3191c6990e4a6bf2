"""Seeded stories of a scheduler, the coordinator of an elastic Job, and the link between them: plans and reports are
lost, late, doubled and reordered; either side is restarted at any moment; a scheduler that was replaced goes on to
send its plans; the link is cut for a while.

The scheduler is the real one on an API server in memory, the coordinator its real core. What is true is read from the
API server's objects and the coordinator's generations.
"""

import copy
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from central.controllers.composite import jobs_of
from central.controllers.job import training_plan
from central.controllers.job.training_plan import TrainingPlan
from central.controllers.training.generation import (
    MembershipRules,
    NotAllowed,
    Place,
    Process,
    SizePlan,
    Stale,
)
from central.controllers.training.stored_state import StoredState
from central.model import member_numbers
from central.model.decisions import Delete
from central.model.facts import CoordinatorReported, CoordinatorSilent
from tests.central.controllers.job.job_api import NAMESPACE, Api, job

LEAST, MOST, SEATS = 2, 6, 6
LEAVE_S = 30.0  # the longest time that members who leave may take
SILENT_S = 15.0
RULES = MembershipRules(LEAST, MOST, join_wait_s=3, hold_s=3, below_s=1e9, silent_s=8, leave_s=6)


def elastic_job() -> dict[str, Any]:
    raw = job({"coordinator": 1, "worker": MOST}, cpu="8")
    coordinator, worker = raw["spec"]["tasks"]
    coordinator["template"] = copy.deepcopy(coordinator["template"])
    coordinator["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    worker["minAvailable"] = LEAST
    arguments = ["--task=worker", "--coordinator=coordinator", "--hold=5s"]
    raw["spec"] |= {"minAvailable": LEAST + 1, "plugins": {"elastic": arguments, "svc": []}}
    raw["metadata"]["annotations"] = {"lockstep.dev/resize-cost": "1s"}
    return raw


class PlanStory:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.api = Api(nodes=1, cpu=(8 * SEATS + 2) * 1000)
        self.term = 1
        self.late: list[Callable[[], None]] = []
        self.cut_until = 0.0
        self.disturbed_at = 0.0  # when anything last went wrong
        self.stored: dict[str, Any] = {}
        self.heard_at: float | None = None  # by the present scheduler
        self.outside_since: dict[str, float] = {}  # pods that are no members, by uid
        self.stopped_since: dict[str, float] = {}  # of those, pods that train no more
        self.followed = (0, 0)  # term and generation of the newest plan that the coordinator took
        self.plan: TrainingPlan | None = None  # as the scheduler published it last
        self.stuck = -1  # a member that never acknowledges
        self.start_coordinator()
        self.api.apply(elastic_job())

    # -- both sides

    def start_coordinator(self) -> None:
        self.state = StoredState("ns/j/u", RULES)
        self.state.read(json.loads(json.dumps(self.stored)), self.api.now)
        self.save()
        self.followed = (0, 0)

    def save(self) -> None:
        self.stored |= json.loads(json.dumps(self.state.changes(self.api.now)))

    def scheduler_step(self, seconds: float) -> None:
        api, before = self.api, self.workers()
        for decision in api.step(seconds):
            if isinstance(decision, Delete) and decision.name.startswith("j-worker-"):
                number = int(decision.name.rsplit("-", 1)[1])
                self.check_deletion(number, before[number]["metadata"]["uid"])
        changed = training_plan.changed(
            jobs_of(api.cluster), api.cluster.state, api.cluster.queues.currency
        )
        for by_pod in changed.values():
            self.plan = next(iter(by_pod.values()), None)
        if self.heard_at is not None and api.now - self.heard_at > SILENT_S:
            self.heard_at = None
            api.tell(CoordinatorSilent(NAMESPACE, "j", self.job_uid()))
        self.check_pods()

    def job_uid(self) -> str:
        return str(self.api.job()["metadata"]["uid"])

    def workers(self) -> dict[int, dict[str, Any]]:
        return {
            int(name.rsplit("-", 1)[1]): raw
            for (kind, name), raw in self.api.there.items()
            if kind == "Pod" and "-worker-" in name and name.startswith("j-")
        }

    def wanted(self) -> tuple[int, ...]:
        found = (self.api.status().get("elastic") or {}).get("worker") or {}
        return member_numbers.from_text(found.get("members", "0-1"))

    # -- the link

    def send(self, message: Callable[[], None], *, clean: bool) -> None:
        fate = 1.0 if clean else self.random.random()
        if self.api.now < self.cut_until or fate < 0.1:
            self.disturb("lost")
        elif fate < 0.25:
            self.disturb("late")
            self.late.append(message)
            if fate < 0.15:
                message()
        else:
            message()

    def disturb(self, what: str) -> None:
        self.disturbed_at = self.api.now
        self.counts[what] += 1

    def hand_over_plan(self, *, clean: bool) -> None:
        if self.plan is not None:
            term, plan, made = self.term, copy.copy(self.plan), self.api.now
            self.send(lambda: self.take_plan(term, plan, made), clean=clean)

    def take_plan(self, term: int, plan: TrainingPlan, made: float) -> None:
        places = {one.member: Place(one.path, one.pod, one.uid, one.ended) for one in plan.places}
        left = None if plan.leave_by is None else max(0.0, plan.leave_by - made)
        until = None if left is None else self.api.now + left
        version = term << 32 | plan.generation
        offered = SizePlan(version, plan.members, places, until, plan.reason, plan.least, plan.over)
        members = self.state.membership
        before = members.plan
        members.set_plan(self.api.now, offered)
        assert members.plan is not None
        taken = (members.plan.version >> 32, members.plan.version & 0xFFFFFFFF)
        assert taken >= self.followed, "a coordinator never goes back to an older plan"
        if before is not None and version < before.version:
            assert members.plan.members == before.members
            self.counts["older plan"] += 1
        self.followed = taken

    def report(self, *, clean: bool) -> None:
        members = self.state.membership
        training = members.live.incarnations() if members.live else members.present()
        term, generation = self.followed
        known = tuple(sorted(training))
        uid = self.job_uid()

        def arrive() -> None:
            followed = generation if term == self.term else 0
            self.heard_at = self.api.now
            self.api.tell(CoordinatorReported(NAMESPACE, "j", uid, followed, known))

        self.send(arrive, clean=clean)

    # -- members

    def act(self) -> None:
        """Each process joins, polls and acknowledges, as its pod runs."""
        members, now = self.state.membership, self.api.now
        for number, raw in self.workers().items():
            if raw["status"]["phase"] != "Running" or self.random.random() < 0.2:
                continue
            incarnation = int(raw["metadata"]["uid"].rsplit("-", 1)[1])
            name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
            try:
                members.join(now, Process(number, incarnation, name, name, uid, "n0"))
                if (
                    number != self.stuck
                    and members.unacknowledged(number)
                    and members.proposal is not None
                ):
                    members.ack(now, number, incarnation, members.proposal.number, None)
            except Stale:
                self.counts["stale"] += 1
            except NotAllowed:  # the plan names another pod
                self.counts["not allowed"] += 1
        self.state.advance(now)
        self.save()

    # -- what must hold

    def check_deletion(self, number: int, uid: str) -> None:
        """A member that leaves by plan stops first, unless its time is over or something went wrong."""
        live = self.state.membership.live
        trains = live is not None and live.incarnations().get(number) == int(uid.rsplit("-", 1)[1])
        since = self.outside_since.get(uid, self.api.now)
        quiet = self.api.now - self.disturbed_at > 20.0
        if trains and quiet and self.api.now - since < 3.0:
            raise AssertionError(f"worker {number} was deleted while it trained")
        self.counts["expired" if trains else "let go"] += 1

    def check_pods(self) -> None:
        """Whoever is no member is gone within the longest time."""
        wanted, there = self.wanted(), set()
        for number, raw in self.workers().items():
            uid = raw["metadata"]["uid"]
            if number in wanted:
                continue
            there.add(uid)
            since = self.outside_since.setdefault(uid, self.api.now)
            assert self.api.now - since < LEAVE_S + 5.0, f"worker {number} stays for ever"
            live = self.state.membership.live
            if live is None or number in live.incarnations():
                self.stopped_since[uid] = self.api.now
            stopped = self.stopped_since.setdefault(uid, self.api.now)
            quiet = self.api.now - self.disturbed_at > 20.0
            assert not quiet or self.api.now - stopped < 4.0, f"worker {number} stopped and stays"
        for uid in self.outside_since.keys() - there:
            del self.outside_since[uid]

    # -- the story

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.turn(clean=False)
            chosen = self.random.random()
            if chosen < 0.02:
                self.disturb("scheduler restarts")
                self.term, self.heard_at, self.plan = self.term + 1, None, None
                self.api.fall()
            elif chosen < 0.04:
                self.disturb("coordinator restarts")
                if self.random.random() < 0.3:
                    self.stored = {}  # and has lost its volume
                self.start_coordinator()
            elif chosen < 0.06:
                self.disturb("cut")
                self.cut_until = self.api.now + self.random.choice((3.0, 10.0, 40.0))
            elif chosen < 0.14:
                self.change_need()
            elif chosen < 0.16 and (pods := sorted(self.workers())):
                self.disturb("pod lost")
                self.api.evict(f"j-worker-{self.random.choice(pods)}")
            elif self.late and chosen < 0.35:
                self.late.pop(self.random.randrange(len(self.late)))()
        self.calm_down()
        self.resize_in_calm()

    def resize_in_calm(self) -> None:
        """Nothing else goes wrong but, in some stories, a member that never acknowledges."""
        self.disturbed_at = -1e9
        if self.random.random() < 0.5:
            self.stuck = min(self.wanted())
        self.change_need()
        for _ in range(45):
            self.turn(clean=True)

    def change_need(self) -> None:
        if ("Job", "s") in self.api.there:
            self.api.delete_job("s")
        else:
            self.api.apply(job({"w": self.random.randint(1, SEATS - LEAST)}, name="s", cpu="8"))

    def turn(self, *, clean: bool) -> None:
        self.scheduler_step(1.0 if clean else self.random.choice((0.1, 0.5, 1.0, 2.0)))
        self.hand_over_plan(clean=clean)
        self.act()
        if clean or self.random.random() < 0.7:
            self.report(clean=clean)

    def calm_down(self) -> None:
        """Nothing goes wrong any more: both sides agree, and everybody who has a pod trains."""
        self.cut_until = 0.0
        self.late.clear()
        for _ in range(120):
            self.turn(clean=True)
            if self.agreed() and not self.outside_since:
                self.counts["agreed"] += 1
                return
        live = self.state.membership.live
        raise AssertionError(
            f"they do not agree: the Job has {self.wanted()}, pods {sorted(self.workers())}, plan {self.plan}, "
            f"live {live and sorted(live.incarnations())}"
        )

    def agreed(self) -> bool:
        members = self.state.membership
        wanted = set(self.wanted())
        running = {n for n, raw in self.workers().items() if raw["status"]["phase"] == "Running"}
        return (
            members.plan is not None
            and set(members.plan.members) == wanted == running
            and members.live is not None
            and set(members.live.incarnations()) == wanted
        )

"""The processes of an elastic Job that train together.

A generation is proposed, acknowledged by all its members, then live. Its number only grows. At most one is
proposed and one is live; a change while one is proposed supersedes it under the next number. The proposal names
those who leave as well: they acknowledge the step at which they stopped, or are waited for until leave_by, and longer
while a checkpoint is written.

- Growth is proposed when the planned members have joined, or `hold_s` after the first of them did. So those who
  train do not wait for pods that start.
- A loss, and a plan that takes members away, is proposed at once, with those who have joined.
- A newcomer that does not acknowledge within `join_wait_s` is taken out of the proposal and comes with a later one.
- With fewer than `least` members a proposal does not become live. After `below_s` the Job is over.
- With `replica` a generation has whole replicas alone. The others of a broken one wait until it is whole again.

A process is lost when it says so, when a younger one joins under its number, when it is silent for `ended_s` and
the scheduler says that its pod ended, or when it is silent for `silent_s`, or for `answer_s` after a member said that
no step ends.

Design: docs/design/coordinator.md
"""

from dataclasses import dataclass, field, replace

from central.controllers.training.generation import (
    LIVE,
    PORTS,
    Generation,
    MembershipRules,
    NotAllowed,
    Process,
    SizePlan,
    Stale,
    in_whole_replicas,
    member_list,
    ranked,
)
from central.controllers.training.roster import Failure, Roster
from central.model.json_types import Json, ReadOnlyJson

_AHEAD = 1_000_000  # a member may know a number that is higher by this much than what was stored
_STEPS_TO_STOP = 2  # reports of one step are in flight when the stop is decided
_LATEST_S = 600.0  # a process that never acknowledges delays a resize no more often than this
TOLD_TO_END = 143  # the exit code of a process that got SIGTERM: neither done nor failed
_NEVER = float("inf")
_UNKNOWN = (-1, 0.0)


@dataclass(slots=True)
class Membership:
    rules: MembershipRules
    number: int = 0  # the highest that was ever given
    live: Generation | None = None
    proposal: Generation | None = None
    plan: SizePlan | None = None
    over: str = ""  # why the Job is over; empty: it is not
    failed: bool = False  # it is over because its work cannot be done
    roster: Roster = field(default_factory=Roster)
    version: int = 0  # grows with each change that members must learn of, or that must be stored
    saving: bool = False  # the live generation writes a checkpoint
    asked_at: float | None = None  # all members of the live generation are to be heard since
    _below_since: float | None = None
    # In this version nothing is due before that time. What a version does not count sets it to _UNKNOWN.
    _quiet: tuple[int, float] = _UNKNOWN

    # -- what members ask

    @property
    def is_done(self) -> bool:
        """The Job is over, it has not failed, and no members are missing."""
        return bool(self.over) and not self.failed and self._below_since is None

    @property
    def newest(self) -> Generation | None:
        return self.proposal or self.live

    @property
    def mark(self) -> tuple[int, int]:
        """The part that must be stored before members learn of it: the highest number, and the live generation's."""
        return self.number, self.live.number if self.live else 0

    def present(self) -> dict[int, int]:
        """Incarnations of the processes that joined and are not lost."""
        return self.roster.incarnations()

    def training(self) -> list[int]:
        """Members that train, those that the others wait for, and as many that wait as spares."""
        if self.live is None:
            return [*self.present()]
        inside, spares = self.live.incarnations(), 0 if self.proposal else self.rules.spares
        waits = [one for one in self.present() if one not in inside and self._is_wanted(one)]
        return [*inside, *waits[:spares]]

    def answer(self, now: float, member: int | None = None) -> Json:
        """The newest generation, as GET /v1/generation returns it."""
        newest = self.newest
        if newest is None:
            empty: Json = {"generation": self.number, "state": "waiting", "members": [], "size": 0}
            rest = {"leader": None, "reason": "", "stop_after_step": None}
            return {**empty, **rest, **self._common((), None, now), "acknowledged": False}
        leader, outside = newest.processes[0], self._outside(newest)
        waiting = [one for one in outside if self._is_wanted(one)]
        leaving = {*newest.leaving, *outside}.difference(waiting)
        return {
            "generation": newest.number,
            "state": newest.state,
            "members": member_list(newest),
            "size": len(newest.processes),
            "leader": {"address": leader.address, "port": self.rules.port + newest.number % PORTS},
            "reason": newest.reason,
            "stop_after_step": newest.stop_after_step,
            **self._common(tuple(sorted(leaving)), newest.leave_by, now),
            "waiting": waiting,
            "replica": self.rules.replica,
            "acknowledged": newest.state == LIVE
            or (member is not None and not self.unacknowledged(member)),
        }

    def _outside(self, newest: Generation) -> list[int]:
        """Returns the members that have trained, and are not in the generation because their replica is broken."""
        if self.rules.group == 1:
            return []
        inside, present = newest.incarnations(), self.roster.present
        return [one for one in sorted(present) if present[one].process.since and one not in inside]

    def _common(self, leaving: tuple[int, ...], leave_by: float | None, now: float) -> Json:
        return {
            "leaving": list(leaving),
            "leave_in_s": None if leave_by is None else round(max(0.0, leave_by - now), 3),
            "live": self.live.number if self.live else 0,
            "over": bool(self.over),
            "over_reason": self.over,
        }

    def has_changed(self, after: int, *, live: bool = False) -> bool:
        """Returns whether a long poll is to be answered now. live: wait until a generation above `after` is live."""
        newest = self.newest
        if self.over:
            return True
        if newest is None:
            return self.number > after
        if live and newest.state != LIVE:
            return newest.number > after + 1
        return newest.number > after

    def unacknowledged(self, member: int) -> bool:
        """Returns whether the proposal waits for this member."""
        proposal = self.proposal
        if proposal is None or member in proposal.acknowledged:
            return False
        return member in proposal.incarnations() or member in proposal.leaving

    # -- what members say

    def join(self, now: float, process: Process) -> int:
        """The newest number. Joining twice changes nothing. Raises Stale, NotAllowed."""
        self._check_claim(process)
        if self.roster.join(now, process):
            self.version += 1
        self._quiet = _UNKNOWN  # its address or its pod may have changed
        self.advance(now)
        return self.number

    def _check_claim(self, process: Process) -> None:
        """A planned member's number belongs to its pod."""
        if process.member >= self.rules.most:
            raise NotAllowed(f"member {process.member}: the Job has at most {self.rules.most}")
        place = self.plan.places.get(process.member) if self.plan else None
        if place and place.pod and (place.pod, place.uid) != (process.pod, process.uid):
            raise NotAllowed(f"member {process.member} is pod {place.pod}, not {process.pod}")

    def heard(self, now: float, member: int, incarnation: int) -> None:
        """The process has sent a request. A long poll that is open shows no life: its process may stand still. Raises
        NotJoined."""
        self.roster.of(member, incarnation).heard = now

    def stood_still(self, seconds: float) -> None:
        """The coordinator answered no request for so long, so no process was silent."""
        for one in self.roster.present.values():
            one.heard += seconds
        if self.asked_at is not None:
            self.asked_at += seconds

    def ask(self, now: float, member: int, incarnation: int, number: int) -> None:
        """A member of the live generation takes no step, and others may be the cause: all are to be heard. Raises
        NotJoined."""
        self.heard(now, member, incarnation)
        is_live = self.live is not None and self.live.number == number
        if is_live and self.rules.answer_s and self.asked_at is None and not self.saving:
            self.asked_at, self._quiet = now, _UNKNOWN
            self.advance(now)

    def is_asked(self, member: int) -> bool:
        there = self.roster.present.get(member)
        return self.asked_at is not None and there is not None and there.heard < self.asked_at

    def raise_number(self, now: float, number: int) -> None:
        """A member has seen this generation. If that is above all that was stored, the stored state is old: what
        is live is unknown, and numbers go on above. Raises NotAllowed."""
        if number <= self.number:
            return
        if number > self.number + _AHEAD:
            raise NotAllowed(f"generation {number} is far above {self.number}")
        self.number = number
        self.live = self.proposal = None
        self._below_since = None
        for one in self.roster.present.values():
            one.waiting_since = now
        self.version += 1

    def ack(self, now: float, member: int, incarnation: int, number: int, step: int | None) -> Json:
        """Raises Stale, NotJoined."""
        self.heard(now, member, incarnation)
        live, proposal = self.live, self.proposal
        if live is not None and number == live.number and proposal is None:
            return self._ack_answer(counted=True, stop=None)
        if proposal is None or number != proposal.number:
            raise Stale(f"generation {number} is over")
        is_in = proposal.incarnations().get(member) == incarnation
        if not is_in and member not in proposal.leaving:
            raise Stale(f"member {member} is not in generation {number}")
        stop = proposal.stop_after_step
        was_live = live is not None and live.incarnations().get(member) == incarnation
        if was_live and step is not None and stop is not None and step < stop:
            return self._ack_answer(counted=False, stop=stop)
        if member not in proposal.acknowledged:
            proposal.acknowledged[member] = step if was_live else None
            self.version += 1
        self.advance(now)
        return self._ack_answer(counted=True, stop=stop)

    @staticmethod
    def _ack_answer(*, counted: bool, stop: int | None) -> Json:
        return {"counted": counted, "stop_after_step": stop}

    def report(self, now: float, member: int, incarnation: int, number: int, step: int) -> Json:
        """A member of the live generation has taken `step` steps. Raises Stale, NotJoined."""
        self.heard(now, member, incarnation)
        live, proposal = self.live, self.proposal
        if live is None or number != live.number:
            raise Stale(f"generation {number} is not live")
        if live.incarnations().get(member) != incarnation:
            raise Stale(f"member {member} is not in generation {number}")
        there = self.roster.present[member]
        there.step = max(there.step, step)
        if proposal is not None and not proposal.stopped():
            stop = proposal.stop_after_step
            if stop is None or step > stop:
                proposal.stop_after_step = step + _STEPS_TO_STOP
                self.version += 1
        stop = proposal.stop_after_step if proposal is not None else None
        return {"generation": self.number, "stop_after_step": stop}

    def leave(self, now: float, member: int, incarnation: int, code: int, message: str) -> None:
        """The process ends: 0 when its work is done, else it failed. Raises NotJoined."""
        there = self.roster.of(member, incarnation)
        if code == 0 and not self._leaves(member):
            self.roster.done.add(member)
        elif code not in (0, TOLD_TO_END) and self._is_wanted(member):
            self.roster.note_failure(Failure(member, there.process.incarnation, code, message))
        self._lose(member)
        self.advance(now)

    def _leaves(self, member: int) -> bool:
        return not self._is_wanted(member) or bool(
            self.proposal and member in self.proposal.leaving
        )

    # -- what the scheduler says

    def set_plan(self, now: float, plan: SizePlan) -> None:
        if self.plan is not None and plan.version < self.plan.version:
            return
        if plan.leave_by is None:
            plan = replace(plan, leave_by=now + self.rules.leave_s)
        self.plan, self._quiet = plan, _UNKNOWN
        if plan.over:
            self._end(plan.reason or "the Job has ended")
        self.advance(now)

    def set_saving(self, *, saving: bool) -> None:
        if self.saving != saving:
            self.saving, self._quiet = saving, _UNKNOWN

    # -- what follows

    def advance(self, now: float) -> float:
        """Applies everything that is due. Returns when to call again if no report comes before."""
        if self.over:
            return _NEVER
        before, due = self._quiet
        if before == self.version and now < due:
            return due  # who was heard meanwhile is lost later
        before = self.version
        self._drop_silent(now)
        self._propose(now)
        self._settle(now)
        self._propose(now)
        self._watch_least(now)
        due = self._next_time(now)
        self._quiet = (before, due)  # no rest if this changed anything: more may follow from that
        return due

    def _drop_silent(self, now: float) -> None:
        closes = self.asked_at is not None and now >= self.asked_at + self.rules.answer_s
        asked = self.live.incarnations() if closes and self.live is not None else {}
        for member, one in list(self.roster.present.items()):
            silent = now - one.heard
            place = self.plan.places.get(member) if self.plan else None
            ended = place is not None and place.ends(one.process.uid)
            lost = silent >= self.rules.silent_s or (ended and silent >= self.rules.ended_s)
            lost |= asked.get(member) == one.process.incarnation and self.is_asked(member)
            if lost or self._is_stuck(now, member):
                self._lose(member)
        if closes:
            self.asked_at = None

    def _is_stuck(self, now: float, member: int) -> bool:
        proposal, live = self.proposal, self.live
        if not self.rules.stuck_s or proposal is None or live is None:
            return False
        late = now >= proposal.proposed_at + self.rules.stuck_s
        return late and member in live.incarnations() and self.unacknowledged(member)

    def _lose(self, member: int) -> None:
        if self.roster.present.pop(member, None) is not None:
            self.version += 1

    def _is_wanted(self, member: int) -> bool:
        return self.plan is None or member in self.plan.members

    def _wanted(self) -> int:
        """Returns the number of members in a full generation."""
        most = self.rules.most if self.plan is None else len(self.plan.members)
        wanted = max(self._least(), most - self.rules.spares - len(self.roster.done))
        return wanted if self.roster.done else wanted - wanted % self.rules.group

    def _least(self) -> int:
        least = self.plan.least if self.plan and self.plan.least else self.rules.least
        return max(1, least - len(self.roster.done))

    def _target(self, now: float) -> dict[int, Process]:
        """The members of the next generation: of whole replicas, first of those that are in the newest one."""
        newest, group = self.newest, self.rules.group
        inside = newest.incarnations() if newest else {}
        found = {
            member: one.process
            for member, one in self.roster.present.items()
            if self._is_wanted(member) and member not in self.roster.done and one.not_before <= now
        }
        new = {m // group for m, one in found.items() if inside.get(m) != one.incarnation}
        whole = in_whole_replicas(found, group, self.roster.done)
        whole.sort(key=lambda member: member // group in new)
        trains = sum(member // group not in new for member in whole)
        return {member: found[member] for member in whole[: max(trains, self._wanted())]}

    def _propose(self, now: float) -> None:
        target, newest = self._target(now), self.newest
        if not target:
            return
        inside = newest.incarnations() if newest else {}
        outside = {member: one.incarnation for member, one in target.items()}
        gone = [m for m, number in inside.items() if outside.get(m) != number]
        gone = [member for member in gone if member not in self.roster.done or self.proposal]
        come = [member for member, number in outside.items() if inside.get(member) != number]
        if newest is None:
            if self._gathered(now, come, len(target), self.rules.join_wait_s):
                self._new_proposal(now, target, "start")
        elif gone:
            self._new_proposal(now, target, self._why_gone({*gone}))
        elif come and not self.roster.done and self._may_grow(now, come, len(target)):
            self._new_proposal(now, target, self._reason(f"{len(come)} joined"))

    def _may_grow(self, now: float, come: list[int], size: int) -> bool:
        if self.proposal is not None:
            return len(self.proposal.processes) < self._least() <= size
        return self._gathered(now, come, size, self.rules.hold_s)

    def _gathered(self, now: float, come: list[int], size: int, wait_s: float) -> bool:
        """Returns whether all members that can join have joined, or the first of them has waited long enough."""
        if size < self._least():
            return False
        if size >= self._wanted():
            return True
        return now - min(self.roster.present[member].waiting_since for member in come) >= wait_s

    def _why_gone(self, gone: set[int]) -> str:
        planned = [member for member in gone if not self._is_wanted(member)]
        if planned:
            return self._reason(f"{len(planned)} leave")
        return f"{len(gone - self.roster.present.keys())} lost"

    def _reason(self, otherwise: str) -> str:
        return (self.plan.reason if self.plan else "") or otherwise

    def _new_proposal(self, now: float, target: dict[int, Process], reason: str) -> None:
        before, live = self.proposal, self.live
        self.number += 1
        leaving: tuple[int, ...] = ()
        stop = before.stop_after_step if before else None
        if live is not None:
            inside = live.incarnations()
            there = self.present()
            leaving = tuple(m for m in sorted(inside) if m not in target and m in there)
            steps = [self.roster.present[m].step for m in inside if m in there]
            if stop is None and max(steps, default=-1) >= 0:
                stop = max(steps) + _STEPS_TO_STOP
        places = self.plan.places if self.plan else {}
        leave_by = self.plan.leave_by if self.plan else None
        self.proposal = Generation(
            self.number,
            ranked(target.values(), places, self.rules.group),
            reason,
            proposed_at=now,
            leave_by=(leave_by if leave_by is not None else now + self.rules.leave_s)
            if leaving
            else None,
            leaving=leaving,
            stop_after_step=stop,
        )
        self.version += 1

    def _settle(self, now: float) -> None:
        proposal = self.proposal
        if proposal is None:
            return
        if now >= proposal.proposed_at + self.rules.join_wait_s:
            self._drop_late(now, proposal)
        if len(proposal.processes) < self._least():
            return
        present = self.present()
        for one in proposal.processes:
            if present.get(one.member) != one.incarnation:
                return
            if one.member not in proposal.acknowledged:
                return
        leave_by = proposal.leave_by
        if leave_by is not None and self.saving:
            leave_by += self.rules.save_s
        patient = leave_by is not None and now < leave_by
        here = self.roster.present.keys() - proposal.acknowledged.keys()
        if patient and not here.isdisjoint(proposal.leaving):
            return
        self._make_live(proposal)

    def _drop_late(self, now: float, proposal: Generation) -> None:
        """Takes newcomers that did not acknowledge out of the proposal, if enough remain without them."""
        live = self.live.incarnations() if self.live else {}
        late = [
            one
            for one in proposal.processes
            if one.member not in proposal.acknowledged and live.get(one.member) != one.incarnation
        ]
        gone = {one.member for one in late}
        rest = proposal.incarnations().keys() - gone
        kept = {*in_whole_replicas(rest, self.rules.group, self.roster.done)}
        if not late or len(kept) < self._least():
            return
        proposal.processes = tuple(one for one in proposal.processes if one.member in kept)
        for member in gone & self.roster.present.keys():
            there = self.roster.present[member]
            wait_s = min(_LATEST_S, self.rules.hold_s * 2**there.late)
            there.late, there.not_before = there.late + 1, now + wait_s
        self.version += 1

    def _make_live(self, proposal: Generation) -> None:
        found = []
        for one in proposal.processes:
            known = one if one.since else replace(one, since=proposal.number)
            there = self.roster.present[one.member]
            there.process, there.step, there.late = known, -1, 0
            found.append(known)
        proposal.processes = tuple(found)
        proposal.state = LIVE
        self.live, self.proposal = proposal, None
        self.version += 1

    def _watch_least(self, now: float) -> None:
        newest = self.newest
        if newest is not None and not newest.incarnations().keys() - self.roster.done:
            self._end("all members are done")
        elif newest is None or len(self._target(now)) >= self._least():
            self._below_since = None
        elif self._below_since is None:
            self._below_since = now
        elif now >= self._below_since + self.rules.below_s:
            left, wait = len(self._target(now)), self.rules.below_s
            self._end(f"{left} of at least {self._least()} members for {wait:g} s")

    def fail(self, reason: str) -> None:
        """The Job's work cannot be done."""
        if not self.over:
            self.failed = True
            self._end(reason)

    def _end(self, reason: str) -> None:
        self.over = reason
        self.version += 1

    def _next_time(self, now: float) -> float:
        rules = self.rules
        times = [self._below_since + rules.below_s] if self._below_since is not None else []
        times += [self.asked_at + rules.answer_s] if self.asked_at is not None else []
        for one in self.roster.present.values():
            times += (one.heard + rules.ended_s, one.heard + rules.silent_s, one.not_before)
            times += (one.waiting_since + rules.hold_s, one.waiting_since + rules.join_wait_s)
        if (proposal := self.proposal) is not None:
            times += (proposal.proposed_at + wait for wait in (rules.join_wait_s, rules.stuck_s))
            times += ((proposal.leave_by or _NEVER) + more for more in (0.0, rules.save_s))
        return min((time for time in times if time > now), default=_NEVER)

    # -- storing

    def snapshot(self) -> Json:
        return {
            "number": self.number,
            "live": self.live.snapshot() if self.live else None,
            "proposal": self.proposal.snapshot() if self.proposal else None,
            **self.roster.snapshot(),
        }

    @classmethod
    def restore(cls, rules: MembershipRules, data: ReadOnlyJson, now: float) -> "Membership":
        """All timers begin again: the coordinator was away, not its members. Whether the Job is over is found again: it
        may have been started again."""
        roster = Roster.restore(data, now)
        made = cls(rules, data["number"], roster=roster)
        made.live = Generation.restore(data["live"], now) if data["live"] else None
        made.proposal = Generation.restore(data["proposal"], now) if data["proposal"] else None
        if made.proposal is not None and made.proposal.leaving:
            made.proposal.leave_by = now + rules.leave_s
        return made

"""The coordinator's whole state, and its form in a store: sections, of which only those are written that changed.

The schema has a version. Older ones are read, a newer one is refused. Sections with unknown names are left as they
are.
"""

from collections.abc import Callable
from math import inf

from central.controllers.training.checkpoints import Checkpoints
from central.controllers.training.generation import MembershipRules, nearness
from central.controllers.training.gpu_time import GpuTime
from central.controllers.training.measured_speeds import MeasuredSpeeds
from central.controllers.training.membership import Membership
from central.controllers.training.pair_checks import BAD_PLACE, PairChecks, PairReport
from central.controllers.training.queue_journal import JournalLimits, QueueJournal
from central.controllers.training.slow_members import SlowMembers
from central.controllers.training.standstills import Standstill, Standstills
from central.controllers.training.tasks import Tasks
from central.model.defaults import TASKS_FAILED_MOST
from central.model.json_types import Json, ReadOnlyJson

SCHEMA = 3
STANDS_STILL = 75  # the exit code of a member that is replaced for it
_META, _MEMBERS, _CHECKPOINTS, _GPU_TIME = "meta", "membership", "checkpoints", "gpu time"
_SPEEDS = "speeds"


class UnreadableState(Exception):
    """The stored state cannot be used, with the reason as a sentence."""


class StoredState:
    """run: how often a coordinator was started with this state. failed_most: the part of a queue's tasks that may be
    set aside in an epoch; with more the Job fails."""

    def __init__(
        self,
        job: str,
        rules: MembershipRules,
        failed_most: float = TASKS_FAILED_MOST,
        limits: JournalLimits = JournalLimits(),  # noqa: B008  # immutable
    ) -> None:
        self._failed_most, self._limits = failed_most, limits
        self.job = job
        self.run = 0
        self.membership = Membership(rules)
        self.tasks = Tasks()
        self.checkpoints = Checkpoints()
        self.standstills = Standstills()
        self.gpu_time = GpuTime()
        self.pairs = PairChecks()
        self.slow = SlowMembers()
        self.speeds = MeasuredSpeeds()
        self._written: dict[str, object] = {}
        self._quiet: tuple[object, float] = (None, 0.0)  # versions in which nothing is due before
        self._journals: dict[str, QueueJournal] = {}

    def advance(self, now: float) -> float:
        """Returns when to call again at the latest."""
        members = self.membership
        self.gpu_time.elapse(now, members)
        live = members.live.number if members.live else 0
        writes = self.checkpoints.is_writing(now, live, members.rules.save_s)
        members.set_saving(saving=writes)
        at = members.advance(now)
        self.standstills.follow(members.live)
        self.slow.follow(members.live)
        before, due = self._quiet
        if before == self._versions() and now < due:
            return min(at, due)
        expiry = self.tasks.advance(now, members.present())
        if why := self.tasks.too_many_set_aside(self._failed_most):
            members.fail(why)
        if members.live is not None:
            self.checkpoints.drop_older(members.live.number)
        due = inf if expiry is None else expiry
        self._quiet = (self._versions(), due)
        return min(at, due)

    def stands_still(self, now: float, generation: int, size: int, one: Standstill) -> None:
        """A process of the live generation takes no step. Members that are the cause have failed, where the policy is
        so."""
        found, members = self.standstills, self.membership
        if not found.add(generation, size, one):
            return
        inside = members.live.incarnations() if members.live is not None else {}
        blamed = [(one, inside[one]) for one in found.blamed if one in inside]
        # A process that is gone is replaced as a lost one.
        here = [each for each in blamed if members.roster.knows(*each)]
        for member, incarnation in here if here and found.may_replace(now) else ():
            if members.roster.knows(member, incarnation):
                members.leave(now, member, incarnation, STANDS_STILL, found.sentence)

    def check_pairs(self, now: float, one: PairReport) -> None:
        """Concludes with the last report. Members that are the cause of weak pairs have failed, and their pods are to
        be replaced."""
        members, found = self.membership, self.pairs
        if members.live is None:
            return
        processes = members.live.processes
        near = nearness(processes, members.plan.places if members.plan else {})
        if not found.add(now, members.live, one, near):
            return
        there = {each.member: each for each in processes}
        for member in found.blamed:
            process = there[member]
            # A process that is gone is replaced as a lost one.
            is_here = members.present().get(member) == process.incarnation
            if is_here and self.standstills.budget.allows(now):
                found.note_replaced(process)
                members.leave(now, member, process.incarnation, BAD_PLACE, found.sentence)

    def compare(self, now: float, member: int, own_s: float, step_s: float) -> None:
        """A member of the live generation reports the times of a step. Where the policy is so, the pod of one for which
        the others wait is to be replaced; it trains until it is deleted."""
        members = self.membership
        if members.live is None or members.proposal is not None:
            return
        self.slow.add(now, members.live, member, own_s, step_s)
        process = self.slow.due(now, members.live, self.standstills.budget)
        if process is not None:
            self.pairs.note_replaced(process)

    def unsaved(self) -> bool:
        """Returns whether something has changed since changes() was called last."""
        written = self._written
        queues = {name: each.version for name, each in self.tasks.queues.items()}
        return (
            written.get(_META) != self.run
            or written.get(_MEMBERS) != self.membership.version
            or written.get(_CHECKPOINTS) != self.checkpoints.version
            or any(written.get(f"queue/{name}") != version for name, version in queues.items())
        )

    def _versions(self) -> object:
        return self.membership.version, [each.version for each in self.tasks.queues.values()]

    # -- writing

    def changes(self, now: float, *, whole: bool = False) -> dict[str, Json]:
        """The sections that changed since the last call. whole: each queue as one section, for a store that writes all
        that it has each time."""
        found: dict[str, Json] = {}
        self._note(found, _META, self.run, self._meta)
        self._note(found, _MEMBERS, self.membership.version, self.membership.snapshot)
        self._note(found, _CHECKPOINTS, self.checkpoints.version, self.checkpoints.snapshot)
        stored = (self.membership.version, self.checkpoints.version)  # it changes all the time
        self._note(found, _GPU_TIME, stored, self.gpu_time.snapshot)
        self._note(found, _SPEEDS, stored, self.speeds.snapshot)
        for name, queue in self.tasks.queues.items():
            mark = (queue.source.total, len(queue.source.names))
            self._note(found, f"source/{name}", mark, queue.source.json)
            if self._written.get(f"queue/{name}") != queue.version:
                self._written[f"queue/{name}"] = queue.version
                found |= self._journal(name).sections(queue, now, whole=whole)
        return found

    def _journal(self, name: str) -> QueueJournal:
        if name not in self._journals:
            self._journals[name] = QueueJournal(name, self.run, self._limits)
        return self._journals[name]

    def _meta(self) -> Json:
        return {"schema": SCHEMA, "job": self.job, "run": self.run}

    def _note(
        self, found: dict[str, Json], name: str, mark: object, make: Callable[[], Json]
    ) -> None:
        if self._written.get(name) != mark:
            self._written[name] = mark
            found[name] = make()

    # -- reading

    def read(self, sections: dict[str, ReadOnlyJson], now: float) -> None:
        """Raises UnreadableState."""
        meta = sections.get(_META)
        if meta is None:
            if sections:
                raise UnreadableState("the stored state has no schema version")
            self.run = 1
            self.tasks = Tasks(self.run)
            return
        if meta["schema"] > SCHEMA:
            raise UnreadableState(
                f"the stored state has schema {meta['schema']}; this version reads schemas up to "
                f"{SCHEMA}; run the version that wrote it, or a newer one"
            )
        if meta["job"] != self.job:
            raise UnreadableState(
                f"the stored state belongs to Job {meta['job']}, not {self.job}; give each Job a store of its own"
            )
        self.run = meta["run"] + 1
        try:
            self._read(sections, now)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UnreadableState(f"the stored state is damaged ({error!r})") from error

    def _read(self, sections: dict[str, ReadOnlyJson], now: float) -> None:
        self.tasks = Tasks(self.run)
        if _MEMBERS in sections:
            rules = self.membership.rules
            self.membership = Membership.restore(rules, sections[_MEMBERS], now)
        if _CHECKPOINTS in sections:
            self.checkpoints = Checkpoints.restore(sections[_CHECKPOINTS], now)
        if _GPU_TIME in sections:
            self.gpu_time = GpuTime.restore(sections[_GPU_TIME])
        if _SPEEDS in sections:
            self.speeds = MeasuredSpeeds.restore(sections[_SPEEDS])
        self.tasks.restore(now, sections)

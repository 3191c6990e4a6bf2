"""The processes of an elastic Job that are present: their joins, their last messages, and those that have ended."""

from dataclasses import dataclass, field, replace

from central.controllers.training.generation import NotJoined, Outdone, Process, Stale
from central.model.json_types import Json, ReadOnlyJson

_FAILURES = 16  # last failures that are kept for the status


@dataclass(slots=True)
class Presence:
    """Times in seconds."""

    process: Process
    heard: float
    waiting_since: float
    step: int = -1  # last reported, of the live generation
    late: int = 0  # proposals in a row that it did not acknowledge in time
    not_before: float = 0.0  # it is in no proposal before this time


@dataclass(frozen=True, slots=True)
class Failure:
    member: int
    incarnation: int
    code: int
    message: str


@dataclass(slots=True)
class Roster:
    present: dict[int, Presence] = field(default_factory=dict)  # by member
    highest: dict[int, int] = field(default_factory=dict)  # incarnation that each member ever had
    done: set[int] = field(default_factory=set)  # members that ended with exit code 0
    failures: list[Failure] = field(default_factory=list)
    failed: int = 0  # failures so far

    def incarnations(self) -> dict[int, int]:
        return {member: one.process.incarnation for member, one in self.present.items()}

    def knows(self, member: int, incarnation: int) -> bool:
        there = self.present.get(member)
        return there is not None and there.process.incarnation == incarnation

    def of(self, member: int, incarnation: int) -> Presence:
        """Raises NotJoined."""
        there = self.present.get(member)
        if there is None or there.process.incarnation != incarnation:
            raise NotJoined(f"member {member} with incarnation {incarnation} has not joined")
        return there

    def join(self, now: float, process: Process) -> bool:
        """Records the process and returns whether it is new. A younger incarnation replaces an older one. Raises
        Outdone, Stale."""
        member, incarnation = process.member, process.incarnation
        there, highest = self.present.get(member), self.highest.get(member, -1)
        if incarnation < highest:
            raise Outdone(member, highest)
        if there is not None and there.process.incarnation == incarnation:
            there.heard = now
            there.process = replace(process, since=there.process.since)
            return False
        failed = any((one.member, one.incarnation) == (member, highest) for one in self.failures)
        if incarnation == highest and (member in self.done or failed):
            raise Stale(f"member {member} of this incarnation has ended")
        # A process that was given up while it was only silent returns as a newcomer.
        self.highest[member] = incarnation
        self.done.discard(member)
        self.present[member] = Presence(process, now, now)
        return True

    def note_failure(self, failure: Failure) -> None:
        self.failed += 1
        self.failures.append(failure)
        del self.failures[:-_FAILURES]

    def snapshot(self) -> Json:
        return {
            "present": [one.process.json() for one in self.present.values()],
            "highest": sorted(self.highest.items()),
            "done": sorted(self.done),
            "failed": self.failed,
        }

    @classmethod
    def restore(cls, data: ReadOnlyJson, now: float) -> "Roster":
        there = {one.member: Presence(one, now, now) for one in map(Process.read, data["present"])}
        return cls(there, dict(data["highest"]), set(data["done"]), failed=data["failed"])

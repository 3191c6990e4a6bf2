"""The phases of a scheduling cycle, and which of them are left out for a while because they failed.

A phase that fails on one object is tried again without that object (culprit.py). Until that is found, and where it is
none, the cycle goes on without the phase: for 1 s, then for 2, 4, ... 300 s if it fails again.

Design: docs/design/containment.md
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from enum import Enum
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

FIRST_S, LONGEST_S = 1.0, 300.0  # for which a phase is left out
RECENT_S = 60.0  # a failure so soon after the last one is the same bug
GANGS_MOST = 2  # on which a phase fails within RECENT_S; then it is looked for what is at fault

Result = TypeVar("Result")
Item = TypeVar("Item")
Arguments = ParamSpec("Arguments")


class Phase(Enum):
    """The name, and what is so without the phase, for users whose gangs wait; empty: it makes no difference to them."""

    def __init__(self, label: str, without: str = "") -> None:
        self.label, self.without = label, without

    __hash__ = object.__hash__  # hashed for each pod: that of Enum is written in Python

    HELD_PODS = (
        "pods that wait for their controllers",
        "pods that wait for their controllers wait on",
    )
    NETWORK = "network tree", "changes of the network are not seen"
    QUEUE_TREE = "tree of queues", "changes of queues are not seen"
    BACKOFFS = "ends of backoffs"
    QUEUE_CAPACITY = "capacity of the queues", "shares of queues are not brought up to date"
    TIME_SHARING = "time sharing", "the order of gangs that share time is not brought up to date"
    ACCOUNT = "accounts of gangs"
    MODELS = "GPU models of elastic gangs", "no GPU model is chosen"
    DUE = "gangs that are due"
    ORDER = (
        "order of pending gangs",
        "gangs start by priority and age, whatever their queues' shares",
    )
    EQUAL_REQUESTS = "equal requests"
    TURN = "turn of a gang"
    RESERVED_CAPACITY = "reserved capacity", "nothing is reserved and nobody gives way"
    CLAIMS = "claims", "nobody gives way"
    RESERVATIONS = "reservations", "nothing more is reserved"
    MODEL_CHOICE = "choice of a GPU model", "no GPU model is chosen"
    CLAIMANTS = "claims on bindings of the round", "bindings of the same cycle are not withdrawn"
    LONG_SEARCHES = "long searches", "searches that take long are not made"
    CLAIM_WATCH = "watch of claims"
    REASONS = "reasons", "its numbers are of an earlier moment"
    GPU_MEMORY = "GPU memory"
    RDMA_USAGE = "RDMA usage"
    PARTIAL_GANGS = "partial gangs"
    ELASTIC_SIZES = "elastic sizes", "no elastic gang shrinks for it"
    CONTROLLERS = "controllers"
    COMMANDS = "Commands"
    CRON_JOBS = "CronJobs"
    JOB_FLOWS = "JobFlows"
    JOBS = "Jobs"
    ELASTIC_OBJECTS = "elastic objects"
    ADMISSION = "admission"
    PODGROUP = "admission of a PodGroup"
    QUEUE_STATUSES = "queue statuses"
    HYPERNODE_STATUSES = "HyperNode statuses"
    STATUSES = "statuses"
    CANDIDATES = "candidates"
    CYCLE = "scheduling"  # whatever is in no other phase


# A failure in one of these says nothing but that one gang is at fault: without it there are no decisions at all.
OF_ONE_GANG = frozenset({Phase.ACCOUNT, Phase.TURN, Phase.PARTIAL_GANGS, Phase.PODGROUP})
# They change the state, or the snapshot for a while. Where one fails, the state is built again.
CHANGING_STATE = frozenset(
    {
        Phase.HELD_PODS,
        Phase.NETWORK,
        Phase.BACKOFFS,
        Phase.QUEUE_CAPACITY,
        Phase.CLAIM_WATCH,
        Phase.REASONS,
        Phase.ELASTIC_SIZES,
    }
)


@dataclass(slots=True)
class LeftOutPhase:
    until: float
    wait_s: float


class CyclePhases:
    def __init__(self) -> None:
        self.now = 0.0
        self.passed: set[Phase] = set()  # ever
        self.failed: set[Phase] = set()  # ever
        # also those that are over, for the next wait
        self._left_out: dict[Phase, LeftOutPhase] = {}
        self._gangs: dict[Phase, dict[Hashable, float]] = {}  # set aside for it, and when
        self._blamed: tuple[BaseException, Phase] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_blamed": None}

    def for_trial(self) -> "CyclePhases":
        """Of a copy of the scheduler: nothing is left out, nothing has failed."""
        made = copy(self)
        made.passed, made.failed = set(), set()
        made._left_out, made._gangs, made._blamed = {}, {}, None
        return made

    def begin(self, now: float) -> bool:
        """At the beginning of a cycle. Returns whether a phase that was left out is tried again."""
        over = [each for each in self._left_out.values() if self.now < each.until <= now]
        self.now = now
        return bool(over)

    def run(self, phase: Phase, call: Callable[..., Result], *args: Any, without: Result) -> Result:
        """The result of the call; without: instead, while the phase is left out. What it raises is blamed on the
        phase, or on the innermost one that it passed."""
        if self._left_out and self.is_left_out(phase):
            return without
        try:
            result = call(*args)
        except Exception as error:
            self.blame(error, phase)
            raise
        self.passed.add(phase)
        return result

    def each(self, phase: Phase, items: Iterable[Item]) -> Iterator[Item]:
        """The items, which the phase finds one by one."""
        if self._left_out and self.is_left_out(phase):
            return
        try:
            yield from items
        except Exception as error:
            self.blame(error, phase)
            raise
        self.passed.add(phase)

    def blame(self, error: BaseException, phase: Phase) -> None:
        """It came out of the phase, which is at fault unless one inside it is."""
        if self._blamed is None or self._blamed[0] not in (error, error.__cause__):
            self._blamed = error, phase
            self.failed.add(phase)
        elif self._blamed[0] is error.__cause__:
            self._blamed = error, self._blamed[1]

    def blamed(self, error: BaseException) -> Phase:
        """The innermost phase that raised it."""
        blamed, self._blamed = self._blamed, None
        if blamed is not None and blamed[0] in (error, error.__cause__):
            return blamed[1]
        self.failed.add(Phase.CYCLE)
        return Phase.CYCLE

    # --- failures ----------------------------------------------------------------------

    def is_left_out(self, phase: Phase) -> bool:
        left_out = self._left_out.get(phase)
        return left_out is not None and self.now < left_out.until

    def leave_out(self, phase: Phase) -> float:
        """Returns for how many seconds."""
        before, wait_s = self._left_out.get(phase), FIRST_S
        if before is not None and self.now < before.until + max(before.wait_s, RECENT_S):
            wait_s = min(2 * before.wait_s, LONGEST_S)
        self._left_out[phase] = LeftOutPhase(self.now + wait_s, wait_s)
        return wait_s

    def restore(self, phase: Phase) -> None:
        """The object on which it failed is set aside."""
        self._left_out.pop(phase, None)

    def failed_on(self, phase: Phase, gang: Hashable) -> list[Hashable]:
        """The phase failed in the turn of this gang. Returns the gangs on which it did lately if they are so many that
        something else may be at fault, or if it was left out a moment ago; else nothing."""
        gangs = self._gangs.setdefault(phase, {})
        for key in [key for key, at in gangs.items() if self.now > at + RECENT_S]:
            del gangs[key]
        gangs[gang] = self.now
        before = self._left_out.get(phase)
        again = before is not None and self.now < before.until + max(before.wait_s, RECENT_S)
        return list(gangs) if again or len(gangs) >= GANGS_MOST else []

    def take_gangs(self, phase: Phase) -> list[Hashable]:
        """The gangs that were set aside for it lately: something else is at fault."""
        return list(self._gangs.pop(phase, ()))

    def left_out(self) -> dict[Phase, LeftOutPhase]:
        """Those that are left out now."""
        return {phase: each for phase, each in self._left_out.items() if self.now < each.until}

    def ends(self) -> list[float]:
        """When those are tried again."""
        return [each.until for each in self.left_out().values()]

    def remark(self) -> str:
        """What the reason of a gang that waits says of them; empty where it does not matter to it. The error itself may
        be about an object of another namespace."""
        if not self._left_out:
            return ""
        clauses = [
            f"{phase.without} for {each.wait_s:.0f} s after a failure of the scheduler (a bug), which its log names"
            for phase, each in self.left_out().items()
            if phase.without
        ]
        return "; ".join(clauses)


class _InPhases(Protocol):
    @property
    def phases(self) -> CyclePhases: ...


Owner = TypeVar("Owner", bound=_InPhases)


def in_phase(
    phase: Phase,
) -> Callable[
    [Callable[Concatenate[Owner, Arguments], Result]],
    Callable[Concatenate[Owner, Arguments], Result],
]:
    """A method of the phase. While that is left out, nobody has such an object."""

    def wrap(
        method: Callable[Concatenate[Owner, Arguments], Result],
    ) -> Callable[Concatenate[Owner, Arguments], Result]:
        def run(self: Owner, /, *args: Arguments.args, **more: Arguments.kwargs) -> Result:
            try:
                return method(self, *args, **more)
            except Exception as error:
                self.phases.blame(error, phase)
                raise

        update_wrapper(run, method)
        return run

    return wrap

"""Objects that are set aside because the scheduler failed on them: a bug, contained to the object that triggered it.

An object is tried again when it changes, and after a long backoff even if it does not. One that fails
again and again waits longer each time, so that a tenant who keeps changing it costs nothing.

    gang g raises TypeError: set aside for 5 min, then 10, 20, ... 60 min
    its PodGroup changes: tried at once the first time, then after 30 s, 1 min, 2 min, ... 10 min

Design: docs/design/containment.md
"""

from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from traceback import walk_tb
from typing import Any, NamedTuple, cast

from central.model import facts
from central.model.facts import Fact
from central.model.stored_fields import NOT_STORED

GANG, ACCOUNT = "gang", "account of a gang"  # kinds: its decisions, or what its queue counts
CYCLE = "scheduling cycle"  # kind of a failure that no object or gang is set aside for
PODGROUP = "PodGroup"
RETRY_S = (300.0, 3600.0)  # first and longest backoff of an object that does not change
CHANGED_RETRY_S = (30.0, 600.0)  # the same of one that changes, from its second failure on
COMES_BACK_S = 60.0  # a failure from the same place within that is the same one again
SUSPECT_S = 600.0  # after a failure, objects of the same kind are tried apart first
FAILURES_KEPT = 20
DETAIL_MAX = 160  # characters of the exception's text that a reason shows


class SetAsideKey(NamedTuple):
    """Names one object, or one gang's decision. identity: what tells it from its namesakes."""

    kind: str  # as users know it: Pod, Node, PodGroup, Job, ...
    identity: Hashable
    of_decision: bool = False  # a controller's decision failed, not a fact about the object


@dataclass(slots=True)
class SetAside:
    namespace: str
    name: str
    why: str  # for users
    content: object = field(metadata=NOT_STORED)  # as it was; tried again when it differs
    failures: int
    retry_at: float  # tried again then, in any case
    changed_retry_at: float  # not tried before, even if it changed
    latest: Fact | None  # the newest one about it, which is tried then; None: of a decision


@dataclass(slots=True)
class QuarantineMemory:
    set_asides: dict[SetAsideKey, SetAside] = field(default_factory=dict)
    suspect_until: dict[str, float] = field(default_factory=dict)


class SchedulerFailure(NamedTuple):
    """An exception, for the log of the process that runs the scheduler."""

    key: SetAsideKey
    namespace: str
    name: str
    error: BaseException
    fresh: bool  # the object was not set aside before


def place_of(error: BaseException) -> tuple[str, str, str, int]:
    """The type of an exception that was raised, and the file, function and line that raised it."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    return type(error).__name__, frame.f_code.co_filename, frame.f_code.co_name, line


class Quarantine:
    def __init__(self) -> None:
        # The state was built again after a failure without an object, and no round has ended since.
        self.is_on_trial = False
        # The place of that failure, and when it was.
        self._rebuilt: tuple[object, float] = (None, 0.0)
        self.set_asides: dict[SetAsideKey, SetAside] = {}
        # not logged yet
        self.failures_to_log: deque[SchedulerFailure] = deque(maxlen=FAILURES_KEPT)
        self.warnings: list[tuple[SetAsideKey, SetAside]] = []  # without an Event yet
        self.total: Counter[str] = Counter()  # failures so far, by kind
        self._suspect_until: dict[str, float] = {}  # by kind
        self._members: dict[Hashable, list[SetAside]] | None = None  # by gang; None: to be counted

    def remembered(self) -> QuarantineMemory:
        return QuarantineMemory(self.set_asides, self._suspect_until)

    def restore(self, memory: QuarantineMemory) -> None:
        """Tries a gang, or an object that a controller decides about, once more: only facts say whether they
        changed."""
        aside = memory.set_asides.items()
        self.set_asides = {key: replace(each, content=each.latest) for key, each in aside}
        self._suspect_until, self._members = memory.suspect_until, None

    def set_aside(
        self,
        key: SetAsideKey,
        display: tuple[str, str],
        error: BaseException,
        content: object,
        now: float,
    ) -> SetAside:
        """display: namespace and name."""
        before = self.set_asides.get(key)
        failures = 1 + (before.failures if before is not None else 0)
        again_s = 0.0 if failures == 1 else _doubled(CHANGED_RETRY_S, failures - 1)
        found = self.set_asides[key] = SetAside(
            *display,
            f"set aside after a failure of the scheduler (a bug): {describe(error)}; "
            "tried again when it changes",
            content,
            failures,
            now + _doubled(RETRY_S, failures),
            now + again_s,
            None if key.of_decision or key.kind in (GANG, ACCOUNT) else cast("Fact", content),
        )
        self._members = None
        self.note(key, display, error, fresh=before is None)
        self._suspect_until[key.kind] = now + SUSPECT_S
        self.warnings.append((key, found))
        return found

    def note(
        self,
        key: SetAsideKey,
        display: tuple[str, str],
        error: BaseException,
        *,
        fresh: bool = True,
    ) -> None:
        """Records a failure after which nothing needs to be set aside."""
        self.total[key.kind] += 1
        self.failures_to_log.append(SchedulerFailure(key, *display, error, fresh))

    def comes_back(self, error: BaseException, now: float) -> bool:
        """Returns whether a rebuild did not help: a failure without an object comes before a round of the rebuilt state
        has ended, or from the place of the last one a moment ago, because each round plans again what fails."""
        (before, at), place = self._rebuilt, place_of(error)
        again = self.is_on_trial or (place == before and now - at < COMES_BACK_S)
        self.is_on_trial, self._rebuilt = True, (place, now)
        return again

    def blocks(self, key: SetAsideKey, content: object, now: float) -> bool:
        """Returns whether the object, as it is now, must not be tried."""
        found = self.set_asides.get(key)
        if found is None or now >= found.retry_at:
            return False
        if found.content == content:
            return True
        found.retry_at = min(found.retry_at, found.changed_retry_at)
        return now < found.retry_at

    def suspects(self, kind: str) -> bool:
        """Returns whether an object of this kind failed lately: then others are tried apart first. Objects with
        the same fault, or one that is created again and again, cost one rebuild."""
        return kind in self._suspect_until

    def forget_suspicion(self, now: float) -> None:
        if self._suspect_until:
            self._suspect_until = {k: at for k, at in self._suspect_until.items() if at > now}

    def needs_care(self) -> bool:
        """Returns whether an object is set aside, or a kind is suspected."""
        return bool(self.set_asides or self._suspect_until)

    def retried(self, now: float) -> list[Any]:
        """The facts about objects whose backoff has ended."""
        due = (found for found in self.set_asides.values() if now >= found.retry_at)
        return [found.latest for found in due if found.latest is not None]

    def release(self, key: SetAsideKey) -> None:
        """The object was tried without a failure, or is gone."""
        if self.set_asides.pop(key, None) is not None:
            self._members = None

    def find(self, namespace: str, name: str) -> tuple[SetAsideKey, SetAside] | None:
        """Any object of that name in the namespace, else one without a namespace."""
        for place in (namespace, ""):
            for key, found in self.set_asides.items():
                if (found.namespace, found.name) == (place, name):
                    return key, found
        return None

    def content(self, kind: str, identity: Hashable) -> object:
        """The object as it was when it was set aside; None: it is not set aside."""
        found = self.set_asides.get(SetAsideKey(kind, identity))
        return found.content if found is not None else None

    def gang_why(self, gang: Hashable) -> str:
        """Returns why the gang is set aside, for users; empty: it is not."""
        return self.why(SetAsideKey(GANG, gang)) or self.why(SetAsideKey(ACCOUNT, gang))

    def why(self, key: SetAsideKey) -> str:
        """The same of any object."""
        found = self.set_asides.get(key)
        return found.why if found is not None else ""

    def members_aside(self, gang: Hashable) -> list[SetAside]:
        """Pods of the gang that the state does not have for it."""
        if not self.set_asides:
            return []
        if self._members is None:
            self._members = {}
            for found in self.set_asides.values():
                if (of := getattr(found.content, "gang_key", None)) is not None:
                    self._members.setdefault(of, []).append(found)
        return self._members.get(gang, [])

    def absence(self, kind: str, name: str, namespace: str = "") -> str:
        """Returns the words after the name of an object that is named and not known: a bug may keep out one that
        exists."""
        found = self.set_asides.get(SetAsideKey(kind, (namespace, name)))
        if found is not None:
            return f"is {found.why}"
        return "does not exist" + (f" in namespace {namespace}" if namespace else "")

    def retry_times(self) -> list[float]:
        return [found.retry_at for found in self.set_asides.values()]

    def counts(self) -> dict[str, int]:
        """Returns how many objects are set aside, by kind; a kind that ever failed stays, with 0."""
        found = Counter(key.kind for key in self.set_asides)
        return {kind: found[kind] for kind in sorted(self.total)}

    def take_failures(self) -> list[SchedulerFailure]:
        taken = list(self.failures_to_log)
        self.failures_to_log.clear()
        return taken

    def take_warnings(self) -> list[tuple[SetAsideKey, SetAside]]:
        taken, self.warnings = self.warnings, []
        return taken


def describe(error: BaseException) -> str:
    """The exception in one line."""
    text = " ".join(str(error).split())
    detail = text if len(text) <= DETAIL_MAX else f"{text[:DETAIL_MAX]}..."
    return f"{type(error).__name__}: {detail}" if detail else type(error).__name__


def _doubled(bounds: tuple[float, float], failures: int) -> float:
    first, longest = bounds
    return min(longest, first * 2.0 ** min(failures - 1, 20))


# --- the object of a fact ----------------------------------------------------------

_KINDS = {
    "Gang": PODGROUP,
    "Cron": "CronJob",
    "Flow": "JobFlow",
    "Template": "JobTemplate",
    "Priority": "PriorityClass",
    "Budget": "PodDisruptionBudget",
    "Claim": "PersistentVolumeClaim",
    "Volume": "PersistentVolume",
    "Capacity": "CSIStorageCapacity",
    "Driver": "CSIDriver",
    "AttachLimits": "CSINode",
    "DeviceClaim": "ResourceClaim",
    "Slice": "ResourceSlice",
    "TaintRule": "DeviceTaintRule",
    "Elastic": "elastic object",
    "Owner": "controller",
    "NodeReported": "agent report",
}
_BY_UID = (facts.PodSeen, facts.PodGone, facts.OwnerSeen, facts.OwnerGone)
_BY_POD = (facts.BindDone, facts.BindFailed, facts.EvictDone)
_BY_KIND = (facts.ElasticSeen, facts.ElasticGone, facts.Answered)


def key_of(fact: Fact) -> SetAsideKey:
    """Returns a key that is equal for all facts about one object."""
    display = display_of(fact)
    identity: Hashable = display
    if isinstance(fact, _BY_UID):
        identity = fact.uid
    elif isinstance(fact, _BY_POD):
        identity = fact.pod
    elif isinstance(fact, _BY_KIND):
        identity = (fact.kind, *display)
    word = type(fact).__name__.removesuffix("Seen").removesuffix("Gone")
    return SetAsideKey(_KINDS.get(word, word), identity)


def display_of(fact: Fact) -> tuple[str, str]:
    """Namespace and name, as far as the fact has them."""
    about: Any = fact.spec if isinstance(fact, facts.JobSeen) else fact
    name = getattr(about, "name", "") or getattr(about, "node", "") or getattr(about, "pod", "")
    return getattr(about, "namespace", ""), name or getattr(about, "uid", "")


def is_gone(fact: Fact) -> bool:
    """Returns whether the fact says that its object does not exist any more."""
    return type(fact).__name__.endswith("Gone")

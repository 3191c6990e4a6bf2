"""Members that have a seat and do not start: their image cannot be pulled, or a ConfigMap is missing.

The others of an elastic gang train without them meanwhile. One that has not started for JOIN_WAIT_S gives its seat
back.
After three such tries without a growth that succeeded, the gang stays as large as it is for a while: seats that it
cannot use are others'.

A gang whose minimum is not ready within --start-within releases all its seats, and is tried again after growing delays.
Where no container is stuck, so that images or data may still be on their way, that takes SLOW times as long.
What is known of a single pod holds for all pods of its controller. A gang with another template is tried at once. A
gang that has reached its time limit is evicted in the same way, and not tried again; of Jobs their controller ends the
Job.

Design: docs/design/elastic-sizes.md
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from central.model import member_numbers, wording
from central.model.decisions import NO_START, TIME_LIMIT, Evict
from central.model.defaults import START_WITHIN_S
from central.model.phases import ENDED
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.inventory.pods import Pod, evictions
from central.scheduler.preemption.past_runs import FailedStart, limit_reached, time_left
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey

JOIN_WAIT_S = 30.0  # as long as a generation waits for a newcomer
TRIES = 3
LOWERED_S = 600.0
SLOW = 4
FIRST_DELAY_S = 60.0  # before a gang is tried again; then twice as long each time
LAST_DELAY_S = 1800.0
FORGOTTEN_S = 7200.0  # after the delay


@dataclass(slots=True)
class _Tries:
    count: int = 0
    size: int = 0  # without those that did not start


@dataclass(frozen=True, slots=True)
class Lowered:
    """The gang has no more members than this until then."""

    size: int
    until: float
    why: str


@dataclass(slots=True)
class UnreadyMembers:
    """start_within_s: for gangs that do not say it; 0: no limit"""

    start_within_s: float = START_WITHIN_S
    failed: dict[GangKey, FailedStart] = field(default_factory=dict)  # by start_key()
    _starting: dict[GangKey, float] = field(default_factory=dict)  # since when
    _limited: set[GangKey] = field(default_factory=set)  # that run, with a time limit
    lowered: dict[GangKey, Lowered] = field(default_factory=dict)
    _since: dict[GangKey, dict[str, float]] = field(default_factory=dict)  # by pod uid
    _tries: dict[GangKey, _Tries] = field(default_factory=dict)

    def forget(self, keys: set[GangKey], now: float) -> None:
        """Forgets gangs that no longer exist, and sizes that are allowed again. keys: of the gangs that exist"""
        for known in (self.lowered, self._since, self._tries):
            for key in [key for key in known if key not in keys]:
                del known[key]
        for key in [key for key, lowered in self.lowered.items() if now >= lowered.until]:
            del self.lowered[key]

    def bounded(self, gang: ElasticGang) -> ElasticGang:
        """Returns the gang, with its most size lowered to the one that it may have now."""
        lowered = self.lowered.get(gang.key)
        if lowered is None or lowered.size >= gang.task.most:
            return gang
        most = max(lowered.size, gang.task.least)
        useful = tuple(size for size in gang.task.useful if size <= most)
        return replace(gang, task=replace(gang.task, most=most, useful=useful))

    def due(self) -> Iterator[float]:
        """Yields when members have waited long enough, or a size is allowed again."""
        for found in self._since.values():
            for since in found.values():
                yield from (since + JOIN_WAIT_S, since + 2 * JOIN_WAIT_S)
        yield from (lowered.until for lowered in self.lowered.values())

    # --- gangs whose minimum does not start ------------------------------------------

    def observe(self, gang: Gang, missing: int, now: float) -> None:
        """Called for each gang that changed. missing: Gang.missing()"""
        placed, attempt = gang.counts.placed, gang.attempt
        if gang.object is not None and gang.object.time_limit_s is not None:
            (self._limited.add if placed else self._limited.discard)(gang.key)
        if not placed or missing:
            attempt.ran = attempt.ran and bool(placed)
            if self._starting:
                self._starting.pop(gang.key, None)
        elif not attempt.ran and gang.counts.unready and _lacks(gang):
            self._starting.setdefault(gang.key, now)
        elif not attempt.ran:
            self._starting.pop(gang.key, None)
            attempt.ran = sum(map(_is_up, placed)) >= gang.minimum
            if attempt.ran:
                self.failed.pop(start_key(gang), None)

    def forget_start(self, key: GangKey) -> None:
        self._starting.pop(key, None)
        self._limited.discard(key)
        if (failed := self.failed.get(key)) is not None and not failed.tries:
            del self.failed[key]

    def starts_due(self, gangs: Mapping[GangKey, Gang], now: float) -> list[float]:
        """Returns when gangs release their seats if their minimum is not ready by then, or reach their time limits."""
        lefts = (time_left(gangs[key], now) for key in self._limited)
        limits = ((since, self._limit_s(gangs[key])) for key, since in self._starting.items())
        ends = [now + left_s for left_s in lefts if left_s is not None and left_s > 0.0]
        return [*ends, *(since + limit_s for since, limit_s in limits if limit_s)]

    def release_late(self, state: ClusterState, now: float) -> list[Evict]:
        """Evicts the gangs whose minimum was not ready in time."""
        found: list[Evict] = []
        for key, since in [*self._starting.items()]:
            gang = state.gangs[key]
            limit_s = self._limit_s(gang)
            if limit_s and now >= since + limit_s:
                state.pending.touch(gang)
                failed = self._fail(gang, now)
                state.pending.preemption_retry_at.add(failed.until)
                why = f"gang {gang.display_name}: {failed.why}"
                found += evictions(gang.counts.placed, why, NO_START)
        for key in sorted(self._limited):
            gang = state.gangs[key]
            left_s = None if gang.published.of_job else time_left(gang, now)
            if left_s is not None and left_s <= 0.0:
                state.pending.touch(gang)
                why = limit_reached(gang)
                templates = tuple({pod.seen.template for pod in gang.members.values()})
                self.failed[key] = FailedStart(0, inf, why, templates, _uid(gang))
                why = f"gang {gang.display_name} {why}"
                found += evictions(gang.counts.placed, why, TIME_LIMIT)
        return found

    def _limit_s(self, gang: Gang) -> float:
        """Returns how long the gang may take to be ready; 0: as long as it likes."""
        said = [pod.seen.start_within_s for pod in gang.counts.placed]
        if gang.object is not None and gang.object.start_within_s is not None:
            said = [gang.object.start_within_s]
        known = [each for each in said if each is not None]
        if known or gang.counts.tied:
            return max(known, default=0.0)
        specs = {pod.spec for pod in gang.counts.placed}
        devices = any(
            each.devices or any("/" in name for name, _ in each.requests) for each in specs
        )
        if not (gang.key[2] or devices):
            return 0.0
        stuck = any(pod.seen.stuck for pod in gang.counts.placed)
        return self.start_within_s if stuck else SLOW * self.start_within_s

    def _fail(self, gang: Gang, now: float) -> FailedStart:
        """Records that the gang did not start."""
        unready, key = [pod for pod in gang.counts.placed if not pod.seen.ready], start_key(gang)
        before = self.failed.get(key)
        tries = before.tries + 1 if before is not None and not self._mended(gang, before) else 1
        reasons = sorted({pod.seen.stuck or "not ready" for pod in unready})
        why = (
            f"{len(unready)} of {wording.counted(len(gang.counts.placed), 'pod')} did not become ready within "
            f"{wording.format_duration(self._limit_s(gang))} ({', '.join(reasons)}; "
            f"{min(unready, key=_name).seen.name})"
        )
        delay_s = min(FIRST_DELAY_S * 2 ** min(tries - 1, 10), LAST_DELAY_S)
        templates = tuple(sorted({pod.seen.template for pod in unready}))
        for old in [old for old, one in self.failed.items() if now > one.until + FORGOTTEN_S]:
            del self.failed[old]
        self._starting[gang.key] = now  # refused evictions are retried after the same time
        failed = self.failed[key] = FailedStart(tries, now + delay_s, why, templates, _uid(gang))
        return failed

    def held(self, gang: Gang, now: float) -> FailedStart | None:
        """Returns why the gang is not tried yet; None: it may be."""
        failed = self.failed.get(start_key(gang)) if self.failed else None
        if failed is None or now >= failed.until or self._mended(gang, failed):
            return None
        return failed

    @staticmethod
    def _mended(gang: Gang, failed: FailedStart) -> bool:
        """Returns whether the gang has another object or another template than the one that did not start."""
        live = {pod.seen.template for pod in gang.members.values() if not pod.leaving}
        return _uid(gang) != failed.of or (bool(live) and live.isdisjoint(failed.templates))

    # --- surplus members -------------------------------------------------------------

    def late(self, gang: ElasticGang, now: float) -> list[Pod]:
        """Members that have not started for too long, as many as the gang can do without: the highest numbers. Those
        that came a little later are waited for, so that all leave in one change."""
        if not gang.unready:
            self._since.pop(gang.key, None)
            self._note_success(gang)
            return []
        known = self._since.get(gang.key, {})
        pods = {number: gang.placed[number] for number in gang.unready}
        since = {pod.seen.uid: known.get(pod.seen.uid, now) for pod in pods.values()}
        self._since[gang.key] = since
        waited = [now - at for at in since.values()]
        if min(waited) < JOIN_WAIT_S and max(waited) < 2 * JOIN_WAIT_S:
            return []
        late = [
            pods[number]
            for number in sorted(pods, reverse=True)
            if now - since[pods[number].seen.uid] >= JOIN_WAIT_S
        ]
        return late[: gang.spare]

    def _note_success(self, gang: ElasticGang) -> None:
        tries = self._tries.get(gang.key)
        if tries is None or len(gang.placed) <= tries.size:
            return
        if all(pod.seen.phase == "Running" for pod in gang.placed.values()):
            del self._tries[gang.key]

    def give_back(self, gang: ElasticGang, going: Sequence[Pod], now: float) -> str:
        """Counts a try of members that leave because they do not start, and lowers the size after the last try. Returns
        why they leave."""
        tries = self._tries.setdefault(gang.key, _Tries())
        tries.count += 1
        tries.size = len(gang.placed) - len(going)
        numbers = [number for pod in going if (number := gang.number(pod)) is not None]
        why = describe(gang, numbers)
        if tries.count < TRIES:
            return f"{why} (try {tries.count} of {TRIES})"
        del self._tries[gang.key]
        self.lowered[gang.key] = Lowered(tries.size, now + LOWERED_S, why)
        return f"{why} (try {TRIES} of {TRIES}); no more than {tries.size} for {LOWERED_S / 60:.0f} min"


def start_key(gang: Gang) -> GangKey:
    """Returns under what the starts of the gang are known: single pods of one controller share them."""
    if gang.key[2]:
        return gang.key
    owner = next((pod.seen.owner_name for pod in gang.members.values()), "")
    return (gang.namespace, owner or gang.name, False)


def _uid(gang: Gang) -> str:
    return gang.object.uid if gang.object is not None else ""


def _lacks(gang: Gang) -> bool:
    """Returns whether the gang has less than its minimum without the pods that are not ready."""
    others = [pod for pod in gang.counts.placed if pod.seen.ready]
    tasks = Counter(pod.seen.task for pod in others) if gang.task_min else {}
    return len(others) < gang.minimum or any(tasks[task] < least for task, least in gang.task_min)


def _is_up(pod: Pod) -> bool:
    return pod.seen.ready and (pod.seen.phase == "Running" or pod.seen.phase in ENDED)


def _name(pod: Pod) -> str:
    return pod.seen.name


def describe(gang: ElasticGang, numbers: Sequence[int]) -> str:
    """Returns a clause that says that these members do not start, and why."""
    reasons = sorted({gang.unready[number] for number in numbers if number in gang.unready})
    which = f"{wording.plural(len(numbers), 'member')} {member_numbers.to_text(numbers)}"
    verb = "do" if len(numbers) > 1 else "does"
    return f"{which} {verb} not start: {', '.join(reasons)}"

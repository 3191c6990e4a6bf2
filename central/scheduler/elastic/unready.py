"""Members that have a seat and do not start: their image cannot be pulled, or a ConfigMap is missing.

The others train without them meanwhile. One that has not started for JOIN_WAIT_S gives its seat back. After three such
tries without a growth that succeeded, the gang stays as large as it is for a while: seats that it cannot use are others'.

Design: docs/design/elastic-sizes.md
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from central.model import member_numbers, wording
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import GangKey

JOIN_WAIT_S = 30.0  # as long as a generation waits for a newcomer
TRIES = 3
LOWERED_S = 600.0


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
    lowered: dict[GangKey, Lowered] = field(default_factory=dict)
    _since: dict[GangKey, dict[str, float]] = field(default_factory=dict)  # by pod uid
    _tries: dict[GangKey, _Tries] = field(default_factory=dict)

    def forget(self, keys: set[GangKey], now: float) -> None:
        """Of gangs that no longer exist."""
        for known in (self.lowered, self._since, self._tries):
            for key in [key for key in known if key not in keys]:
                del known[key]
        for key in [key for key, lowered in self.lowered.items() if now >= lowered.until]:
            del self.lowered[key]

    def bounded(self, gang: ElasticGang) -> ElasticGang:
        """With the most that it may have now."""
        lowered = self.lowered.get(gang.key)
        if lowered is None or lowered.size >= gang.task.most:
            return gang
        most = max(lowered.size, gang.task.least)
        useful = tuple(size for size in gang.task.useful if size <= most)
        return replace(gang, task=replace(gang.task, most=most, useful=useful))

    def due(self) -> Iterator[float]:
        """When members have waited long enough, or a size is allowed again."""
        for found in self._since.values():
            for since in found.values():
                yield from (since + JOIN_WAIT_S, since + 2 * JOIN_WAIT_S)
        yield from (lowered.until for lowered in self.lowered.values())

    def late(self, gang: ElasticGang, now: float) -> list[Pod]:
        """Members that have not started for too long, as many as the gang can do without: the highest numbers. Those that
        came a little later are waited for, so that all leave in one change."""
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
        """These members leave. Returns why."""
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


def describe(gang: ElasticGang, numbers: Sequence[int]) -> str:
    """That these members do not start, and why."""
    reasons = sorted({gang.unready[number] for number in numbers if number in gang.unready})
    which = f"{wording.plural(len(numbers), 'member')} {member_numbers.to_text(numbers)}"
    verb = "do" if len(numbers) > 1 else "does"
    return f"{which} {verb} not start: {', '.join(reasons)}"

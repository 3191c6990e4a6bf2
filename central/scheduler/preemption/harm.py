"""The harm of evictions, as a tuple that is compared from left to right:

1. the highest rank of those that go: gangs with a pod whose replacement runs on the same node or nowhere (a
   DaemonSet's), then priority
2. gangs that fall below their minimum; then of the others how urgent the members are: in a gang of unlike pods the
   least urgent of those above its minimum go
3. work lost: GPU-seconds since the start or the last checkpoint, and those until the pods are gone: capacity stands
   idle for as long as its victims may take to end
4. pods
5. capacity that they hold: GPUs
6. time that they have run, then time since their creation: of equals the youngest goes

Gangs, work and pods are counted priority by priority, the highest first: one gang of priority 10 weighs
more than any number of gangs of priority 9. kube-scheduler also begins with the highest priority of the
victims, and compares the sum of their priorities next.

Work and capacity have one unit, so that pods without GPUs are compared too: GPUs, with CORES_PER_GPU
cores or MEMORY_PER_GPU bytes for each. The largest of the three counts: a pod of 8 GPUs and 64 cores is
8 GPUs, a pod of 64 cores is 4.

Design: docs/design/evictions.md
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from central.model.defaults import MAX_GRACE_S
from central.model.facts import PodSeen, PodSpec
from central.model.resources import GPU_UNITS
from central.scheduler.inventory.pods import Pod
from central.scheduler.queues.gpu_currency import GpuCurrency
from central.scheduler.state.gangs import Gang

CORES_PER_GPU = 16  # GPU servers have 12 to 28 cores for each GPU
MEMORY_PER_GPU = 128 << 30  # and 128 to 256 GiB
TIED = 2**33  # above the difference of any two priorities
_GPU = 1_000_000  # a GPU in the unit of work and capacity
_CURRENCY = GpuCurrency()
# What a pod may count at most, so that sums of 64 bits hold 512 such pods: 268 GPUs, and the work of a year. A node
# sends when its pods started, and a user what they request.
SIZE_MOST, LOST_MOST_S = 2**28, 2**25
# Bits of a count at one priority. Sums stay below: 2**32 gangs or pods, and a million GPUs for ten years.
_COUNT_BITS, _WORK_BITS = 32, 72
# A gang that falls below its minimum, in the unit of urgency: more than the urgency of a million members.
BREAKS, _BROKEN_BITS = 2**24, 56

# Highest priority (as a rank), gangs broken and urgency, work, pods, capacity, run time, time since creation.
Harm = tuple[int, int, int, int, int, int, int]
NO_HARM: Harm = (0, 0, 0, 0, 0, 0, 0)
MAX_HARM: Harm = (2**62, 0, 0, 0, 0, 0, 0)


def plus(a: Harm, b: Harm) -> Harm:
    """The harm of two choices of victims together."""
    return (
        max(a[0], b[0]),
        a[1] + b[1],
        a[2] + b[2],
        a[3] + b[3],
        a[4] + b[4],
        a[5] + b[5],
        a[6] + b[6],
    )


def at_least(a: Harm, b: Harm) -> Harm:
    """The largest harm that is in no part above a or b."""
    return tuple(map(min, a, b))  # type: ignore[return-value]  # both have seven parts


def rank(gang: Gang) -> int:
    """Gangs of the highest rank are evicted last."""
    return gang.priority + TIED * gang.counts.tied


class HarmScale:
    """Compares the evictions of one request. Ranks count by their order among its candidates."""

    def __init__(self, ranks: Iterable[int], now: float, max_grace_s: float = MAX_GRACE_S) -> None:
        """max_grace_s: that a victim may take to end."""
        self._rank = {each: order for order, each in enumerate(sorted(set(ranks)))}
        self._now, self._max_grace_s = now, max_grace_s

    def of(self, rank: int, pods: Sequence[Pod], *, breaks: bool, urgency: int = 0) -> Harm:
        """The harm of evicting these pods of a gang. breaks: it falls below its minimum. urgency: of members above
        it."""
        now = self._now
        work = held = run_time = age = 0
        for pod in pods:
            seen, size = pod.seen, gpus(pod.spec)
            began = seen.started if seen.started is not None else pod.since
            ran = 0 if began is None else max(0, int(now - began))
            kept = pod.checkpoint
            lost = ran if kept is None else min(ran, max(0, int(now - kept)))
            work += size * (min(lost, LOST_MOST_S) + grace_s(seen, self._max_grace_s))
            held += size
            run_time += ran
            age += max(0, int(now - seen.created))
        return _at_rank(
            self._rank[rank], (BREAKS if breaks else urgency, work, len(pods), held, run_time, age)
        )

    def of_parts(self, rank: int, parts: Sequence[int]) -> Harm:
        """Returns the harm of these sums over pods: gangs broken and urgency, work, pods, capacity, run time, age."""
        return _at_rank(self._rank[rank], parts)


def _at_rank(rank: int, parts: Sequence[int]) -> Harm:
    broken, work, pods, held, run_time, age = parts
    counted, lost = _COUNT_BITS * rank, _WORK_BITS * rank
    return (
        rank + 1,
        broken << _BROKEN_BITS * rank,
        work << lost,
        pods << counted,
        held,
        run_time,
        age,
    )


def grace_s(seen: PodSeen, most_s: float) -> int:
    """Returns the seconds that the pod may take to end once it is evicted."""
    return int(min(seen.grace_s, most_s))


@lru_cache(maxsize=1 << 14)
def gpus(spec: PodSpec) -> int:
    """Returns what the pod's requests are worth, in millionths of a GPU; SIZE_MOST at most."""
    requests = dict(spec.requests)
    devices = _CURRENCY.worth((*spec.requests, *spec.charges)) * _GPU // GPU_UNITS
    cores = requests.get("cpu", 0) * _GPU // (1000 * CORES_PER_GPU)
    memory = requests.get("memory", 0) * _GPU // MEMORY_PER_GPU
    return min(max(devices, cores, memory), SIZE_MOST)

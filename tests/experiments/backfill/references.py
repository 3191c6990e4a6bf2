"""Plain implementations of published ways to backfill, on the same nodes. They share no code with Lockstep.

- EASY: first come, first served; the head of the queue gets the earliest time at which it fits, others may go
  first if they do not delay it (Lifka 1995; Mu'alem and Feitelson 2001).
- Conservative: every waiting job gets such a time, in order of arrival.
- Multifactor: conservative in the order of Slurm's priority/multifactor plugin, with equal weights for age (of
  seven days), size and fair share (2 to the power of minus usage by share, half-life seven days).

Pods are packed into the fullest node that fits. A run time that nobody states counts as DEFAULT_S, as the time
limit of a partition does. Who runs longer than stated is expected to end a minute later, then two, then four.
Nobody is ended for it.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from tests.experiments.backfill.days import GPUS, HOUR, Day, Job

DEFAULT_S = 24 * HOUR
WEEK_S = 7 * 24 * HOUR

Free = NDArray[np.int64]  # GPUs by node


@dataclass(slots=True)
class Running:
    job: Job
    took: Free
    began_s: float

    def expected_end_s(self, now: float) -> float:
        end = self.began_s + stated_s(self.job)
        late_s = 60.0
        while end + late_s < now:
            late_s *= 2
        return end if end >= now else end + late_s


@dataclass(slots=True)
class Cluster:
    free: Free
    running: dict[str, Running]
    waiting: list[Job]  # in order of arrival
    usage: dict[str, float]  # GPU seconds by queue, with a half-life
    now: float = 0.0

    def start(self, job: Job, took: Free) -> None:
        self.free -= took
        self.running[job.name] = Running(job, took, self.now)
        self.waiting.remove(job)

    def by_end(self) -> list[Running]:
        return sorted(self.running.values(), key=lambda each: each.expected_end_s(self.now))


Policy = Callable[[Cluster], None]  # starts whom it starts now


def stated_s(job: Job) -> float:
    return DEFAULT_S if job.says_s is None else job.says_s


def place(free: Free, job: Job) -> Free | None:
    """GPUs that the job takes of each node; None: it does not fit."""
    left = free.copy()
    for _ in range(job.pods):
        fitting = np.flatnonzero(left >= job.gpus)
        if not len(fitting):
            return None
        left[fitting[np.argmin(left[fitting])]] -= job.gpus
    return free - left


def play(day: Day, policy: Policy) -> dict[str, float]:
    """When each job starts."""
    cluster = Cluster(np.full(day.nodes, GPUS, dtype=np.int64), {}, [], {})
    order = count()
    agenda: list[tuple[float, int, Job, bool]] = [
        (job.arrives_s, next(order), job, False) for job in day.jobs
    ]
    heapq.heapify(agenda)
    starts: dict[str, float] = {}
    while agenda:
        now = agenda[0][0]
        _age_usage(cluster, now)
        while agenda and agenda[0][0] == now:
            _, _, job, ended = heapq.heappop(agenda)
            if ended:
                cluster.free += cluster.running.pop(job.name).took
            else:
                cluster.waiting.append(job)
        policy(cluster)
        for name in cluster.running.keys() - starts.keys():
            starts[name] = now
            job = cluster.running[name].job
            heapq.heappush(agenda, (now + job.runs_s, next(order), job, True))
    return starts


def _age_usage(cluster: Cluster, now: float) -> None:
    elapsed = now - cluster.now
    for queue in cluster.usage:
        cluster.usage[queue] *= 0.5 ** (elapsed / WEEK_S)
    for running in cluster.running.values():
        queue = running.job.queue
        cluster.usage[queue] = cluster.usage.get(queue, 0.0) + running.job.size * elapsed
    cluster.now = now


def easy(cluster: Cluster, most: int | None = None) -> None:
    """most: how many may start; None: all that can."""
    least = 0 if most is None else max(len(cluster.waiting) - most, 0)
    while len(cluster.waiting) > least:
        head = cluster.waiting[0]
        took = place(cluster.free, head)
        if took is None:
            break
        cluster.start(head, took)
    if len(cluster.waiting) <= least:
        return
    later = cluster.free.copy()
    shadow, taken = cluster.now, None
    for running in cluster.by_end():
        later += running.took
        shadow = running.expected_end_s(cluster.now)
        if (taken := place(later, head)) is not None:
            break
    if taken is None:
        return  # larger than the cluster
    spare = later - taken  # at the shadow time, of what stays free beside the head
    for job in cluster.waiting[1:]:
        if len(cluster.waiting) <= least:
            return
        if cluster.now + stated_s(job) <= shadow:
            if (took := place(cluster.free, job)) is not None:
                cluster.start(job, took)
        elif (took := place(np.minimum(cluster.free, spare), job)) is not None:
            cluster.start(job, took)
            spare -= took


def conservative(cluster: Cluster) -> None:
    _plan(cluster, cluster.waiting)


def multifactor(cluster: Cluster) -> None:
    total = sum(cluster.usage.values())
    queues = {job.queue for job in cluster.waiting} | cluster.usage.keys()
    gpus = len(cluster.free) * GPUS

    def priority(job: Job) -> float:
        age = min((cluster.now - job.arrives_s) / WEEK_S, 1.0)
        used = cluster.usage.get(job.queue, 0.0) / total if total else 0.0
        return age + job.size / gpus + float(2.0 ** -(used * len(queues)))

    _plan(cluster, sorted(cluster.waiting, key=lambda job: (-priority(job), job.arrives_s)))


def _plan(cluster: Cluster, ordered: Iterable[Job]) -> None:
    """Gives each job the earliest time at which it fits beside those before it, and starts those whose time
    is now."""
    now, free = cluster.now, cluster.free.copy()
    times, profile = [now], [free]
    for running in cluster.by_end():
        free = free + running.took
        end = running.expected_end_s(now)
        if end == times[-1]:
            profile[-1] = free
        else:
            times.append(end)
            profile.append(free)
    at, room = np.array(times), np.array(profile)
    for job in [*ordered]:
        lasts = stated_s(job)
        for index in range(len(at)):
            last = int(np.searchsorted(at, at[index] + lasts))
            took = place(room[index:last].min(axis=0), job)
            if took is not None:
                break
        else:
            continue  # larger than the cluster
        end = at[index] + lasts
        if last == len(at) or at[last] != end:
            at = np.insert(at, last, end)
            room = np.insert(room, last, room[last - 1], axis=0)
        room[index:last] -= took
        if index == 0:
            cluster.start(job, took)


POLICIES: dict[str, Policy] = {
    "EASY": easy,
    "conservative": conservative,
    "multifactor": multifactor,
}

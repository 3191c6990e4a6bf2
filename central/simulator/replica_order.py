"""The order in which pods of a ReplicaSet leave when it has too many, as in Kubernetes' controller (1.36): pods
without a node first, then pods that do not run yet, then those with the lowest deletion cost, then pods of nodes that
have most of them, counted before any leaves, then pods that became ready lately, then pods that were created lately.

Both times have whole seconds there. Where they differ, ages are compared by powers of two, and within one a hash of the
uid decides: uids are random there. Restarts of containers, which come before the creation, do not happen in a
simulation.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cmp_to_key
from math import log2
from zlib import crc32

from central.simulator.sim_pod import SimPod


def surplus(pods: Sequence[SimPod], wanted: int, now: float) -> list[str]:
    """uids of the pods that leave. pods: all of one ReplicaSet that have not ended."""
    on_node = Counter(pod.seen.node for pod in pods)

    def group(pod: SimPod) -> tuple[bool, bool, int, int]:
        return bool(pod.seen.node), _runs(pod), pod.deletion_cost, -on_node[pod.seen.node]

    def compare(one: SimPod, other: SimPod) -> int:
        return _by_age(one, other, now)

    youngest_first = sorted(pods, key=cmp_to_key(compare))
    leaving = len(pods) - wanted
    return [pod.seen.uid for pod in sorted(youngest_first, key=group)[: max(leaving, 0)]]


def _runs(pod: SimPod) -> bool:
    return pod.seen.phase == "Running"


def _by_age(one: SimPod, other: SimPod, now: float) -> int:
    """Below 0: the first one leaves before the other."""
    times = [(one.since, other.since)]
    if _runs(one) and _runs(other):
        times.insert(0, (one.started, other.started))
    by_uid = crc32(one.seen.uid.encode()) - crc32(other.seen.uid.encode())
    for mine, others in times:
        if int(mine) != int(others):
            return _age(now - int(mine)) - _age(now - int(others)) or by_uid
    return by_uid


def _age(seconds: float) -> int:
    nanoseconds = int(seconds * 1e9)
    return int(log2(nanoseconds)) if nanoseconds > 0 else -1

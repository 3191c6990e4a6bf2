"""The speeds of an elastic Job by what its coordinator measured, where the Job declares none, or others than these.

A step takes `work / members`, and on several nodes `wait` more; with more than one member, while the Job has not been
measured both on one node and on several. The two numbers follow from what was measured. No size is tried in order to
measure it, and no Job is faster than in proportion to its members, whatever its coordinator says.

Design: docs/design/elastic-speeds.md
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from central.model.arrays import Floats
from central.model.jobspec import ElasticTask
from central.model.speed_table import SpeedTable
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import Pod

Measured = tuple[
    tuple[int, int, float], ...
]  # members, their nodes, and steps or records a second there
WRONG = 1.5  # proportions of declared speeds differ from the measured ones by more
_GUESS, _TRUST = 0.05, 0.1  # of wait / work, and its weight beside one measured place
_SIZES = 64  # of a table, about


def most_on_a_node(pods: Sequence[Pod], nodes: Mapping[str, ClusterNode]) -> int:
    """Returns how many such pods one of their nodes can hold when it is empty. pods: equal ones, at least one."""
    needed = [(name, amount) for name, amount in pods[0].spec.requests if amount]
    there = [nodes[name].allocatable() for name in {pod.node for pod in pods if pod.node}]
    return max(
        (min(has.get(name, 0) // amount for name, amount in needed) for has in there if needed),
        default=1,
    )


@lru_cache(maxsize=1024)
def with_measured(task: ElasticTask, measured: Measured, on_node: int) -> ElasticTask:
    """on_node: how many members a node holds at most."""
    if not measured or (task.speeds is not None and holds(task.speeds, measured)):
        return task
    members, nodes, speeds = np.array(measured).T
    apart = nodes > 1
    everywhere = bool(apart.all() or not apart.any())  # the difference of places is not known
    waits = members > 1 if everywhere else apart
    ratio = _wait_by_work(members, waits, speeds)
    sizes = range(task.least, task.most + 1, task.step)
    chosen = sorted({1, *sizes[:: max(1, len(sizes) // _SIZES)], sizes[-1]})
    far = tuple((size, size / (1 + ratio * size * (size > 1))) for size in chosen)
    near = tuple((size, float(size)) for size in sorted({1, max(1, on_node)}))
    table = SpeedTable(((0, far),) if everywhere else ((1, near), (2, far)))
    return replace(task, speeds=table, useful=table.useful(sizes))


def holds(declared: SpeedTable, measured: Measured) -> bool:
    """Returns whether declared speeds have the measured proportions, about."""
    found = [speed / declared.at(members, nodes) for members, nodes, speed in measured]
    return not found or max(found) <= WRONG * min(found)


def _wait_by_work(members: Floats, waits: Floats, speeds: Floats) -> float:
    """Returns the least squares of relative errors; 0 or more, with two digits, so that it seldom changes."""
    unit = float((speeds / members).mean())
    rows = np.column_stack((speeds / members, np.where(waits, speeds, 0.0)))
    rows = np.vstack((rows, [-_GUESS * _TRUST * unit, _TRUST * unit]))
    (work, wait), *_ = np.linalg.lstsq(rows, np.append(np.ones(len(members)), 0.0), rcond=None)
    return float(f"{max(wait, 0.0) / max(work, 1e-3 * wait):.2g}")

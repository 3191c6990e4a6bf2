"""Surveys of the cluster for all readers: the metrics, the history and the console share one that is young enough.

surveyor = Surveyor(loop)
survey = surveyor.survey(max_age_s=2.0)      # from any thread but the loop's; raises TimeoutError
"""

import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from central.model.gpu_count import DIGITS, GpuCount, total
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler.scheduler import Scheduler
from central.server.stats import elastic_rows, pending_rows, queue_rows
from central.server.stats.elastic_rows import ElasticRow
from central.server.stats.largest_gang import LargestGang, largest_gangs
from central.server.stats.node_rows import NodeTable, SurveyedNode
from central.server.stats.pending_rows import PendingRow
from central.server.stats.queue_rows import QueueRow, TreeCopy
from central.server.stats.sliced_question import SLICE_S, QuestionLoop, SlicedQuestion

TIMEOUT_S = 10.0
_Read = tuple[
    float,
    TreeCopy,
    list[PendingRow],
    list["ReservationRow"],
    float,
    list[ElasticRow],
    frozenset[str],
]


@dataclass(frozen=True, slots=True)
class ReservationRow:
    """Capacity that is kept for a pending gang."""

    namespace: str
    name: str
    queue: str
    place: str  # the narrowest domain around it
    text: str
    start: float  # expected, Unix time; inf: unknown
    gpus: Mapping[str, int] = field(default_factory=dict)  # that are kept free now, by node

    @property
    def held(self) -> int:
        return sum(self.gpus.values())


@dataclass(frozen=True, slots=True)
class Survey:
    """The cluster at one time. at: Unix time. version: grows when a node changed."""

    at: float = 0.0
    version: int = 0
    gone_at: int = 0  # version in which a node was removed last
    levels: tuple[str, ...] = ()
    nodes: Mapping[str, SurveyedNode] = field(default_factory=dict)
    queues: tuple[QueueRow, ...] = ()
    pending: tuple[PendingRow, ...] = ()  # in order of queues, then of their turn
    reservations: tuple[ReservationRow, ...] = ()
    largest: tuple[LargestGang, ...] = ()
    elastic: tuple[ElasticRow, ...] = ()
    usable_gpus: float = 0.0  # GPU equivalents that queues share
    namespaces: frozenset[str] = frozenset()  # that its sentences may name

    @property
    def count(self) -> GpuCount:
        return total(row.count for row in self.nodes.values())

    @property
    def gangs(self) -> Counter[str]:
        """Gangs by phase, in small letters."""
        return sum((Counter(row.gangs) for row in self.queues), Counter())


class SurveySource(Protocol):
    """Takes surveys: Surveyor."""

    def survey(self, max_age_s: float = ..., timeout_s: float = ...) -> Survey: ...


class Surveyor:
    def __init__(self, loop: QuestionLoop, slice_s: float = SLICE_S) -> None:
        self._loop, self._slice_s = loop, slice_s
        self._lock = threading.Lock()  # one survey at a time; others wait for its result
        self._table = NodeTable()
        self._last = Survey()
        self._taken_at = -inf

    def survey(self, max_age_s: float = 2.0, timeout_s: float = TIMEOUT_S) -> Survey:
        """One that is not older. Raises TimeoutError if the loop is too busy."""
        if not self._lock.acquire(timeout=timeout_s):
            raise TimeoutError
        try:
            if time.monotonic() - self._taken_at > max_age_s:
                self._last = self._take(timeout_s)
                self._taken_at = time.monotonic()
            return self._last
        finally:
            self._lock.release()

    def _take(self, timeout_s: float) -> Survey:
        deadline = time.monotonic() + timeout_s
        question = SlicedQuestion(self._steps, self._slice_s)
        while not self._loop.ask(question, max(0.01, deadline - time.monotonic())):
            if time.monotonic() > deadline:
                raise TimeoutError
        at, tree, pending, reservations, usable, elastic, namespaces = question.answer
        nodes = self._table.rows
        held = (each for row in nodes.values() for each in row.holders)
        gpus = round(sum(each.gpus for each in held if each.gang is not None), DIGITS)
        queues = queue_rows.rows(tree, gpus, float(sum(row.gpus for row in pending)))
        order = {row.name: index for index, row in enumerate(queues)}
        pending.sort(key=lambda row: (order.get(row.queue, len(order)), row.rank))
        return Survey(
            at,
            self._table.version,
            self._table.gone_at,
            self._table.levels,
            nodes,
            tuple(queues),
            tuple(pending),
            tuple(reservations),
            largest_gangs(nodes.values(), self._table.levels, _held_by_node(reservations)),
            tuple(elastic),
            usable,
            namespaces,
        )

    def _steps(self, scheduler: Scheduler) -> Generator[None, None, _Read]:
        yield from self._table.steps(scheduler)
        pending = yield from pending_rows.rows(scheduler)
        tree = yield from queue_rows.copied(scheduler)
        elastic = yield from elastic_rows.rows(scheduler)
        usable = scheduler.queues.total.get(GPU_EQUIVALENTS, 0) / GPU_UNITS
        state, held = scheduler.state, _reservations(scheduler)
        return state.now, tree, pending, held, usable, elastic, state.namespaces


def _reservations(scheduler: Scheduler) -> list[ReservationRow]:
    names, now = scheduler.state.snapshot.columns.names, scheduler.state.now
    return [
        ReservationRow(
            held.gang.namespace,
            held.gang.owner or held.gang.name,
            held.queue,
            held.place.name,
            held.describe(now),
            held.start,
            {
                names[row]: gpus
                for row, gpus in zip(
                    held.place.rows.tolist(), held.withheld[:, 0].tolist(), strict=False
                )
                if gpus and names[row]
            },
        )
        for held in scheduler.reservations.values()
    ]


def _held_by_node(reservations: list[ReservationRow]) -> dict[str, int]:
    held: dict[str, int] = {}
    for row in reservations:
        for node, gpus in row.gpus.items():
            held[node] = held.get(node, 0) + gpus
    return held

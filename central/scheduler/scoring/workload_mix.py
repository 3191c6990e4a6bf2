"""What comes, counted by kind, and by row what loads would do there: kept, and worked out anew where something
changed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.filters.filter_cache import FilterResults
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.inventory.columns import Columns
from central.scheduler.inventory.gpu_shares import Offered
from central.scheduler.scoring.fragmentation import UNIT, Left, Load, TypicalPods, left_of, lost
from protos.names import GPU, GPU_SHARE
from protos.topology import Shape

KINDS = 48  # the most frequent count
MEMORY = 8192  # pods: then all count half
FRESH = 1.25  # shares are worked out anew when so many times as many have come
FEW = 64  # rows: what is known of nodes like them is looked up
LOADS_KEPT = 500
STATES_KEPT = 10_000
# Of whom nothing was seen yet: without, the first shares would each open a GPU of their own.
SOMEBODY = PodSpec(((GPU, 1), ("pods", 1)))
State = tuple[bytes, int, Shape | None, int, Offered, int, Left, Left]


class WorkloadMix:
    """What comes, and what it means for each node."""

    def __init__(
        self, columns: Columns, pod_counts: MatchingPodCounts, filter_results: FilterResults
    ) -> None:
        self._columns = columns
        self._pod_counts = pod_counts
        self._filter_results = filter_results
        self._seen: Counter[PodSpec] = Counter()
        self._came = self._counted = 0
        self._specs: list[PodSpec] = []
        self._kinds: TypicalPods | None = None  # the columns of these
        self._judged_at = -1  # the count of changes of nodes
        none: Ints = np.zeros(0, dtype=np.int64)
        self._version = none  # of the nodes, when these were judged
        self._may = none  # by row: a bit for each kind
        self._harms: dict[Load, _Harm] = {}

    def came(self, spec: PodSpec) -> None:
        """A pod that was not known before."""
        shares = spec.request(GPU_SHARE)
        if shares and not self._came:
            self._seen[SOMEBODY] = self._came = 1
        if shares or spec.request(GPU):
            self._seen[_kind(spec)] += 1
            self._came += 1
            if self._came >= MEMORY:
                self._seen = Counter({kind: n // 2 for kind, n in self._seen.items() if n > 1})
                self._came = self._seen.total()
                self._counted = 0

    @property
    def unlike(self) -> bool:
        """Whether there is anything to choose between: pods of more than one kind come."""
        return len(self._seen) > 1

    def harm(self, load: Load, rows: Ints) -> Ints:
        """On each of the rows, what the load would do there."""
        if self._came > self._counted * FRESH or len(self._may) != len(self._columns.names):
            self._count()
        if self._judged_at != self._pod_counts.nodes_version:
            self._judged_at = self._pod_counts.nodes_version
            self._judge(np.flatnonzero(self._version != self._columns.version))
        return self._kept(load).at(rows)

    def kept(self) -> Iterator[tuple[Ints, Ints]]:
        """For promises: what is kept of each load, and what is worked out anew."""
        if self._judged_at == self._pod_counts.nodes_version and len(self._may):
            for load, harm in list(self._harms.items()):
                rows = harm.fresh_rows()
                yield harm.at(rows), self.weigh(load, rows)

    def _count(self) -> None:
        """The shares anew."""
        self._counted = self._came
        frequent = sorted(self._seen.most_common(KINDS), key=_order)
        self._specs = [kind for kind, _ in frequent]
        self._kinds = TypicalPods(self._columns, frequent)
        self._judged_at = -1
        self._version = np.full(len(self._columns.names), -1, dtype=np.int64)
        self._may = np.zeros(len(self._version), dtype=np.int64)
        self._harms.clear()

    def _judge(self, rows: Ints) -> None:
        """Which kinds may run on these rows at all."""
        columns = self._columns
        self._may[rows] = 0
        for place, kind in enumerate(self._specs):
            judgement = self._filter_results.of(kind)
            judgement.refresh(rows, columns.nodes, columns.version)
            self._may[rows] |= judgement.passed[rows].astype(np.int64) << place
        self._version[rows] = columns.version[rows]

    def state(self, row: int, least: int) -> State:
        """All that the harm on a row depends on; least: how surely caps must hold for the load."""
        there, gpus = self._columns, self._columns.gpus
        return (
            there.free[row].tobytes(),
            gpus.count.item(row),
            gpus.shape[row],
            gpus.free_mask[row],
            gpus.offered[row],
            self._may.item(row),
            *left_of(there, row, least),
        )

    def weigh(self, load: Load, rows: Ints) -> Ints:
        """The harm of the load on each row, in parts of a GPU; of no load: what is lost as it is."""
        assert self._kinds is not None, "nothing was counted"
        found = np.round(lost(self._columns, self._kinds, self._may, load, rows) * UNIT)
        harm: Ints = found.astype(np.int64)
        return harm - self._kept(()).at(rows) if load else harm

    def _kept(self, load: Load) -> "_Harm":
        if (harm := self._harms.get(load)) is None:
            if len(self._harms) >= LOADS_KEPT:
                self._harms.clear()
            harm = self._harms[load] = _Harm(self, self._columns, load)
        return harm


class _Harm:
    """What one load does, by row: worked out where somebody asks, and something changed since."""

    def __init__(self, mix: WorkloadMix, columns: Columns, load: Load) -> None:
        self._mix, self._columns, self._load = mix, columns, load
        self._least = max((columns.request(spec).least for spec, _ in load), default=0)
        self._mark = -1
        self._known: dict[State, int] = {}
        self._by_row: Ints = np.zeros(len(columns.names), dtype=np.int64)
        self._stale = np.ones(len(columns.names), dtype=np.bool_)

    def at(self, rows: Ints) -> Ints:
        self._see()
        stale = rows[self._stale[rows]]
        if len(stale) > FEW:
            self._by_row[stale] = self._mix.weigh(self._load, stale)
        elif len(stale):
            self._look_up(stale.tolist())
        self._stale[stale] = False
        return self._by_row[rows]

    def fresh_rows(self) -> Ints:
        self._see()
        return np.flatnonzero(~self._stale)

    def _see(self) -> None:
        self._mark, touched = self._columns.dirty.since(self._mark)
        self._stale[slice(None) if touched is None else touched] = True

    def _look_up(self, rows: Sequence[int]) -> None:
        """Nodes in a state that was met before are known; the others are worked out at once."""
        known, unknown = self._known, list[tuple[int, State]]()
        for row in rows:
            state = self._mix.state(row, self._least)
            if (harm := known.get(state)) is not None:
                self._by_row[row] = harm
            else:
                unknown.append((row, state))
        if unknown:
            if len(known) >= STATES_KEPT:
                known.clear()
            places = np.array([row for row, _ in unknown], dtype=np.int64)
            self._by_row[places] = found = self._mix.weigh(self._load, places)
            known.update(zip((state for _, state in unknown), found.tolist(), strict=True))


def _order(frequent: tuple[PodSpec, int]) -> tuple[object, ...]:
    return not frequent[0].request(GPU_SHARE), frequent[0].requests


@lru_cache(maxsize=1 << 12)
def _kind(spec: PodSpec) -> PodSpec:
    """What of a pod counts for its kind: what it asks for, and which nodes it may use."""
    return PodSpec(
        spec.requests,
        spec.node_selector,
        spec.node_terms,
        spec.tolerations,
        gpu_models=spec.gpu_models,
        gpu_memory=spec.gpu_memory,
    )

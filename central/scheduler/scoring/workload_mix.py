"""The workload mix: which pods are typical, counted by class as they arrive, and what further pods would cost
on each node (fragmentation.py, state_costs.py). With one pod class there is nothing to choose and nothing is computed.

Design: docs/design/fragmentation.md
"""

from collections import Counter
from functools import lru_cache

import numpy as np

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.filters.filter_cache import FilterResults
from central.scheduler.filters.node_filters import READS
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.inventory.columns import Columns
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.scoring.fragmentation import IDLE_WEIGHT, UNIT, TypicalPods
from central.scheduler.scoring.node_states import NodeStates
from central.scheduler.scoring.state_costs import StateCosts
from protos.names import GPU, GPU_SHARE

CLASSES = 48  # the most frequent ones count
HALVED_AT = 8192  # pods: then all counts are halved, so that a new mix takes over
REBUILT_AT = 1.25  # the classes are rebuilt when this many times as many pods were counted
COSTS_CACHED = 500
# What tells classes apart: what the filters read, but for limits that differ from job to job.
_CLASS_FIELDS = ("requests", *(set(READS) - {"memory_level", "nics_in_pod_network", "rdma_limits"}))
# Assumed where shares come first: otherwise each of the first shares would open a new GPU.
WHOLE_GPU_POD = PodSpec(((GPU, 1), ("pods", 1)))


class WorkloadMix:
    """Counts pods by class, and knows what pods would cost on each node."""

    def __init__(
        self, columns: Columns, pod_counts: MatchingPodCounts, filter_results: FilterResults
    ) -> None:
        self._columns = columns
        self._pod_counts = pod_counts
        self._filter_results = filter_results
        self._seen: Counter[PodSpec] = Counter()
        self._observed = self._counted = 0
        self._specs: list[PodSpec] = []
        self._typical: TypicalPods | None = None  # columns of these classes
        self._filtered_at = -1  # version of all nodes
        self._weighed = False  # whether the classes' weights count which nodes they may use
        none: Ints = np.zeros(0, dtype=np.int64)
        self._version = none  # of each node when it was filtered
        self._allowed = none  # by row: one bit per class
        self._states: dict[int, NodeStates] = {}  # by the rank of memory enforcement
        self._costs: dict[PodCounts, StateCosts] = {}

    def observe(self, spec: PodSpec) -> None:
        """Counts a new pod."""
        shares = spec.request(GPU_SHARE)
        if shares and not self._observed:
            self._seen[WHOLE_GPU_POD] = self._observed = 1
        if shares or spec.request(GPU):
            self._seen[_class_of(spec)] += 1
            self._observed += 1
            if self._observed >= HALVED_AT:
                self._seen = Counter(
                    {pod_class: n // 2 for pod_class, n in self._seen.items() if n > 1}
                )
                self._observed = self._seen.total()
                self._counted = 0

    @property
    def varied(self) -> bool:
        """Returns whether there is more than one pod class, so that nodes differ."""
        return len(self._seen) > 1

    def cost(self, pods: PodCounts, rows: Ints) -> Ints:
        """The cost of the pods on each of these rows, in parts of a GPU (UNIT)."""
        if self._observed > self._counted * REBUILT_AT or len(self._allowed) != len(
            self._columns.names
        ):
            self._rebuild()
        if self._filtered_at != self._pod_counts.nodes_version:
            self._filtered_at = self._pod_counts.nodes_version
            self._filter(np.flatnonzero(self._version != self._columns.version))
        if not self._weighed:
            self._weigh()
        self._forget_if_full()
        return self._cost_of(pods).at(rows)

    def half_idle_gpu(self) -> int:
        """Returns the cost of half a GPU as idle capacity, in parts of a GPU (UNIT). Call cost() before."""
        assert self._typical is not None, "no pod was counted"
        return int(UNIT * IDLE_WEIGHT / self._typical.most[0] / 2)

    def _rebuild(self) -> None:
        """Takes the most frequent classes again, and drops all results."""
        self._counted = self._observed
        frequent = sorted(self._seen.most_common(CLASSES), key=_order)
        self._specs = [pod_class for pod_class, _ in frequent]
        self._typical = TypicalPods(self._columns, frequent)
        self._filtered_at = -1
        self._version = np.full(len(self._columns.names), -1, dtype=np.int64)
        self._allowed = np.zeros(len(self._version), dtype=np.int64)
        self._weighed = False
        self._costs.clear()

    def _weigh(self) -> None:
        """The fewer GPUs a class may use, the more each of them is worth to it. Called once the nodes are filtered."""
        for states in self._states.values():
            states.put_allowed(self._allowed)
        assert self._typical is not None, "no pod was counted"
        gpus = self._columns.allocatable[:, 0]
        within_reach = [gpus[self._allowed >> n & 1 == 1].sum() for n in range(len(self._specs))]
        self._typical.weigh_scarcity(np.array(within_reach, dtype=np.int64))
        self._weighed = True

    def _filter(self, rows: Ints) -> None:
        """Updates which classes the filters let in on these rows."""
        columns = self._columns
        self._allowed[rows] = 0
        for place, pod_class in enumerate(self._specs):
            results = self._filter_results.of(pod_class)
            results.refresh(rows, columns.nodes, columns.version)
            self._allowed[rows] |= results.passed[rows].astype(np.int64) << place
        self._version[rows] = columns.version[rows]

    def _cost_of(self, pods: PodCounts) -> StateCosts:
        if (costs := self._costs.get(pods)) is None:
            if len(self._costs) >= COSTS_CACHED:
                self._costs.clear()
            base = self._cost_of(()) if pods else None
            costs = self._costs[pods] = self._costs_in(self._states, pods, base)
        return costs

    def _costs_in(
        self, states: dict[int, NodeStates], pods: PodCounts, base: StateCosts | None
    ) -> StateCosts:
        assert self._typical is not None, "no pod was counted"
        least = max((self._columns.request(spec).least for spec, _ in pods), default=0)
        if least not in states:
            states[least] = NodeStates(self._columns, least)
            states[least].put_allowed(self._allowed)
        return StateCosts(self._columns, self._typical, states[least], pods, base)

    def _forget_if_full(self) -> None:
        assert self._typical is not None, "no pod was counted"
        if self._typical.is_full or [states for states in self._states.values() if states.is_full]:
            self._typical.forget_states()
            self._states.clear()
            self._costs.clear()


def _order(frequent: tuple[PodSpec, int]) -> tuple[object, ...]:
    return not frequent[0].request(GPU_SHARE), frequent[0].requests


@lru_cache(maxsize=1 << 12)
def _class_of(spec: PodSpec) -> PodSpec:
    """The pod's class: what it requests, and which nodes it may use."""
    return PodSpec(**{name: getattr(spec, name) for name in _CLASS_FIELDS})

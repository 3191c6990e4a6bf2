"""What one kind of pod would rather have, among nodes that are equally good otherwise: preferred node
affinity, preferred pod affinity and anti-affinity, soft topology spread, and no PreferNoSchedule taint.
Each is scored from 0 to 100 over all nodes and weighs as much as in kube-scheduler."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from central.model import selectors
from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.inventory.columns import Columns


class PreferenceScore:
    def __init__(self, columns: Columns, pod_counts: MatchingPodCounts, spec: PodSpec) -> None:
        self._columns, self._pod_counts, self._spec = columns, pod_counts, spec
        self._stamp: tuple[int, ...] = ()
        none: Ints = np.zeros(0, dtype=np.int64)
        self._score = none
        self._judged = none  # the node's version then
        self._liked = none  # by row: the weights of the node terms that it meets
        self._taints = none  # by row: how many that discourage such pods

    def score(self) -> Ints:
        """By row. The same array until something has changed."""
        columns, pod_counts = self._columns, self._pod_counts
        stamp = pod_counts.version(self._spec)
        if stamp == self._stamp and len(self._score) == len(columns.names):
            return self._score
        self._stamp = stamp
        self._judge()
        there = np.array([bool(name) for name in columns.names])
        self._score = np.zeros(len(there), dtype=np.int64)
        for each in SCORES:
            values = each.values(self)
            if values is not None:
                self._score += each.weight * _scaled(values, there)
        return self._score

    def node_affinity(self) -> Ints:
        return self._liked

    def taints(self) -> Ints:
        return -self._taints

    def pod_affinity(self) -> Ints | None:
        """Weights of the preferred pods in each row's domain."""
        rules, pod_counts = self._spec.rules, self._pod_counts
        if rules is None or not rules.nearer:
            return None
        sums = np.zeros(len(self._columns.names), dtype=np.int64)
        for near in rules.nearer:
            places = pod_counts.domains(near.key)
            counts = places.sums(pod_counts.matching(near.peers))
            sums += near.weight * _by_row(counts, places.of, 0)
        return sums

    def soft_spread(self) -> Ints | None:
        """Fewer matching pods in a row's domain are better; a row without the label is worst."""
        rules, pod_counts = self._spec.rules, self._pod_counts
        if rules is None or not rules.even:
            return None
        crowd = np.zeros(len(self._columns.names), dtype=np.int64)
        for spread in rules.even:
            places = pod_counts.domains(spread.key)
            counts = places.sums(pod_counts.matching(spread.peers))
            crowd += _by_row(counts, places.of, int(counts.max(initial=0)) + 1)
        return -crowd

    def _judge(self) -> None:
        """Asks about the nodes that changed since they were last asked."""
        columns, spec = self._columns, self._spec
        if more := len(columns.names) - len(self._judged):
            self._judged = np.append(self._judged, np.full(more, -1, dtype=np.int64))
            self._liked = np.append(self._liked, np.zeros(more, dtype=np.int64))
            self._taints = np.append(self._taints, np.zeros(more, dtype=np.int64))
        terms = spec.rules.nodes if spec.rules is not None else ()
        for row in np.flatnonzero(self._judged != columns.version).tolist():
            node = columns.nodes[row]
            self._judged[row] = columns.version[row]
            if node is not None:
                self._liked[row] = sum(
                    weight for weight, term in terms if selectors.meets((term,), node)
                )
                self._taints[row] = sum(
                    taint.effect == selectors.SOFT
                    and not any(selectors.tolerates(t, taint) for t in spec.tolerations)
                    for taint in node.taints
                )


class Score(NamedTuple):
    """values: by row, more is better, in any unit; None: the pods have no such preference. They are
    scaled to 0 ... 100 over all nodes, then weighed as in kube-scheduler."""

    weight: int
    values: Callable[[PreferenceScore], Ints | None]


# To add a score, add its method and its row (docs/contributing.md).
SCORES = (
    Score(2, PreferenceScore.node_affinity),
    Score(3, PreferenceScore.taints),
    Score(2, PreferenceScore.pod_affinity),
    Score(2, PreferenceScore.soft_spread),
)


def _by_row(counts: Ints, of: Ints, elsewhere: int) -> Ints:
    """What holds of each domain, by row; of a row in none: something else."""
    if not len(counts):
        return np.full(len(of), elsewhere, dtype=np.int64)
    return np.where(of >= 0, counts[of], elsewhere)


def _scaled(values: Ints, there: Ints) -> Ints:
    """From 0 for the least to 100 for the most; all alike: 0."""
    among = values[there]
    if not among.size:
        return values * 0
    least, most = int(among.min()), int(among.max())
    scaled: Ints = (values - least) * 100 // max(most - least, 1)
    return scaled

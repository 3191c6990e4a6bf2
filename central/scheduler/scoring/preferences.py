"""Scores nodes by the soft preferences of one pod class: preferred node affinity, preferred pod affinity and
anti-affinity, ScheduleAnyway topology spread, and PreferNoSchedule taints.

Each score is scaled to 0 ... 100 over all nodes and has kube-scheduler's weight. The sum decides among nodes
that are equally close, before fragmentation and fullness. A gang is scored as a whole, against the pods
present before it.

Design: docs/design/placement.md
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from central.model import selectors
from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.model.pod_rules import Nearer, Spread
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.inventory.columns import Columns


class PreferenceScore:
    def __init__(self, columns: Columns, pod_counts: MatchingPodCounts, spec: PodSpec) -> None:
        self._columns, self._pod_counts, self._spec = columns, pod_counts, spec
        self._version: tuple[int, ...] = ()
        none: Ints = np.zeros(0, dtype=np.int64)
        self._score = none
        self._evaluated = none  # version of each node when its affinity and taints were evaluated
        self._affinity = none  # by row: weights of the preferred node terms that match
        # by row: number of PreferNoSchedule taints that the pods do not tolerate
        self._taints = none

    def score(self) -> Ints:
        """Returns the score by row, in the same array until something has changed."""
        columns, pod_counts = self._columns, self._pod_counts
        version = pod_counts.version(self._spec)
        if version == self._version and len(self._score) == len(columns.names):
            return self._score
        self._evaluate_nodes()
        used = np.array([bool(name) for name in columns.names])
        score = np.zeros(len(used), dtype=np.int64)
        for each in SCORES:
            values = each.values(self)
            if values is not None:
                score += each.weight * _scaled(values, used)
        self._score, self._version = score, version
        return score

    def node_affinity(self) -> Ints:
        return self._affinity

    def taints(self) -> Ints:
        return -self._taints

    def pod_affinity(self) -> Ints | None:
        """The summed weights of matching pods in each row's domain."""
        rules = self._spec.rules
        if rules is None or not rules.nearer:
            return None
        sums = np.zeros(len(self._columns.names), dtype=np.int64)
        for near in rules.nearer:
            counts, of = self._matching(near)
            sums += near.weight * _by_row(counts, of, 0)
        return sums

    def soft_spread(self) -> Ints | None:
        """Fewer matching pods in a row's domain are better; a row without the label is worst."""
        rules = self._spec.rules
        if rules is None or not rules.even:
            return None
        crowd = np.zeros(len(self._columns.names), dtype=np.int64)
        for spread in rules.even:
            counts, of = self._matching(spread)
            crowd += _by_row(counts, of, int(counts.max(initial=0)) + 1)
        return -crowd

    def _matching(self, rule: Nearer | Spread) -> tuple[Ints, Ints]:
        """Matching pods by domain, and the domain of each row."""
        domains = self._pod_counts.domains(rule.key)
        return domains.sums(self._pod_counts.matching(rule.peers)), domains.of

    def _evaluate_nodes(self) -> None:
        """Evaluates affinity and taints of nodes that have changed."""
        columns, spec = self._columns, self._spec
        if more := len(columns.names) - len(self._evaluated):
            self._evaluated = np.append(self._evaluated, np.full(more, -1, dtype=np.int64))
            self._affinity = np.append(self._affinity, np.zeros(more, dtype=np.int64))
            self._taints = np.append(self._taints, np.zeros(more, dtype=np.int64))
        terms = spec.rules.nodes if spec.rules is not None else ()
        for row in np.flatnonzero(self._evaluated != columns.version).tolist():
            node = columns.nodes[row]
            self._affinity[row] = self._taints[row] = 0
            if node is not None:
                self._affinity[row] = sum(
                    weight for weight, term in terms if selectors.meets((term,), node)
                )
                self._taints[row] = sum(
                    taint.effect == selectors.SOFT
                    and not any(selectors.tolerates(t, taint) for t in spec.tolerations)
                    for taint in node.taints
                )
            self._evaluated[row] = columns.version[row]


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
    """Each row's count is that of its domain; a row in no domain has `elsewhere`."""
    if not len(counts):
        return np.full(len(of), elsewhere, dtype=np.int64)
    return np.where(of >= 0, counts[of], elsewhere)


def _scaled(values: Ints, used: Ints) -> Ints:
    """Scales to 0 for the least and 100 for the most; equal values become 0."""
    among = values[used]
    if not among.size:
        return values * 0
    least, most = int(among.min()), int(among.max())
    scaled: Ints = (values - least) * 100 // max(most - least, 1)
    return scaled

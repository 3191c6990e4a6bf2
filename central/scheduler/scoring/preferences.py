"""What one kind of pod would rather have, among nodes that are equally good otherwise: preferred node
affinity, preferred pod affinity and anti-affinity, soft topology spread, and no PreferNoSchedule taint.
Each is scored from 0 to 100 over all nodes and weighs as much as in kube-scheduler."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from central.model import selectors
from central.model.arrays import Ints
from central.model.facts import PodSpec

if TYPE_CHECKING:
    from central.scheduler.snapshot.snapshot import Snapshot

NODES, PEERS, SPREAD, TAINTS = 2, 2, 2, 3


def toward(snapshot: "Snapshot", groups: Iterable[tuple[PodSpec, int]]) -> Ints | None:
    """By row, how much such pods would like it there; None: it is all the same to them."""
    total: Ints | None = None
    for spec, count in groups:
        if (spec.rules is not None and spec.rules.leans) or snapshot.neighbours.discouraged:
            view = snapshot.view(spec)
            if view.leaning is None:
                view.leaning = PreferenceScore(snapshot, spec)
            score = view.leaning.score() * count
            total = score if total is None else total + score
    return total


class PreferenceScore:
    def __init__(self, snapshot: "Snapshot", spec: PodSpec) -> None:
        self._snapshot, self._spec = snapshot, spec
        self._stamp: tuple[int, ...] = ()
        none: Ints = np.zeros(0, dtype=np.int64)
        self._score = none
        self._judged = none  # the node's version then
        self._liked = none  # by row: the weights of the node terms that it meets
        self._taints = none  # by row: how many that discourage such pods

    def score(self) -> Ints:
        """The same array until something has changed."""
        snapshot, rules = self._snapshot, self._spec.rules
        stamp = snapshot.neighbours.stamp(self._spec)
        if stamp == self._stamp and len(self._score) == len(snapshot.names):
            return self._score
        self._stamp = stamp
        self._judge()
        there = np.array([bool(name) for name in snapshot.names])
        score = NODES * _scaled(self._liked, there) + TAINTS * _scaled(-self._taints, there)
        neighbours = snapshot.neighbours
        if rules is not None and rules.nearer:
            sums = np.zeros(len(there), dtype=np.int64)
            for near in rules.nearer:
                places = neighbours.places(near.key)
                counts = places.sums(neighbours.matching(near.peers))
                sums += near.weight * _by_row(counts, places.of, 0)
            score += PEERS * _scaled(sums, there)
        if rules is not None and rules.even:
            crowd = np.zeros(len(there), dtype=np.int64)
            for spread in rules.even:
                places = neighbours.places(spread.key)
                counts = places.sums(neighbours.matching(spread.peers))
                crowd += _by_row(counts, places.of, int(counts.max(initial=0)) + 1)
            score += SPREAD * _scaled(-crowd, there)
        self._score = score
        return score

    def _judge(self) -> None:
        """Asks about the nodes that changed since they were last asked."""
        snapshot, spec = self._snapshot, self._spec
        if more := len(snapshot.names) - len(self._judged):
            self._judged = np.append(self._judged, np.full(more, -1, dtype=np.int64))
            self._liked = np.append(self._liked, np.zeros(more, dtype=np.int64))
            self._taints = np.append(self._taints, np.zeros(more, dtype=np.int64))
        terms = spec.rules.nodes if spec.rules is not None else ()
        for row in np.flatnonzero(self._judged != snapshot.version).tolist():
            node = snapshot.nodes[row]
            self._judged[row] = snapshot.version[row]
            if node is not None:
                self._liked[row] = sum(
                    weight for weight, term in terms if selectors.meets((term,), node)
                )
                self._taints[row] = sum(
                    taint.effect == selectors.SOFT
                    and not any(selectors.tolerates(t, taint) for t in spec.tolerations)
                    for taint in node.taints
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

"""Counts again, node by node, what stops a pod there: by the node's own state, and by what it lacks."""

from collections import Counter
from collections.abc import Sequence

from central.model import wording
from central.model.facts import PodSpec
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.reservation.reservation import Reservation
from protos.names import GPU, MIG
from tests.simulation import recount
from tests.simulation.reason_counts import StateCounts


class LackingNodes:
    counts: StateCounts

    def refused(
        self, spec: PodSpec, level: str, nodes: Sequence[ClusterNode], held: Sequence[Reservation]
    ) -> Counter[str]:
        """How many of the nodes that could serve a pod when empty are refused, by all that stops it there."""
        found: dict[tuple[str, tuple[str, ...]], list[dict[str, int]]] = {}
        for node in recount.able(spec, nodes):
            whys = recount.refusals(spec, node)
            if level and level in ("rack", "block") and self.counts.place(node, level) is None:
                whys.append(f"in no {level}")
            lacks = {
                name: asked - max(self.counts.free(node, name, held), 0)
                for name, asked in spec.requests
                if not recount.changes(spec) and self.counts.free(node, name, held) < asked
            }
            if whys:
                found.setdefault((", ".join(whys), tuple(lacks)), []).append(lacks)
        texts: Counter[str] = Counter()
        for (whys_said, names), each in found.items():
            clause = _lack_clause(spec, [(name, [lacks[name] for lacks in each]) for name in names])
            texts[whys_said + (f", {clause}" if names else "")] += len(each)
        return texts

    def lacking(
        self, spec: PodSpec, usable: Sequence[ClusterNode], held: Sequence[Reservation]
    ) -> set[str]:
        """By the resource that stops one more pod, where GPUs do not: the nodes, and how much at least lacks there."""
        found: dict[tuple[bool, tuple[str, ...]], list[tuple[dict[str, int], int]]] = {}
        asked = {name: amount for name, amount in spec.requests if amount}
        devices = [name for name in asked if name == GPU or name.startswith(MIG)]
        for node in usable:
            left = {name: max(self.counts.free(node, name, held), 0) for name in asked}
            floors = {name: left[name] // amount for name, amount in asked.items()}
            fits = min(floors.values())
            parts = [name for name in asked if name in devices or name.startswith("hca_")]
            stops = sorted(name for name in asked if floors[name] == fits and name not in parts)
            if stops:
                lacks = {name: (fits + 1) * asked[name] - left[name] for name in stops}
                alone = not any(floors[name] == fits for name in parts)
                found.setdefault((alone, tuple(stops)), []).append((lacks, fits))
        texts = set()
        for (alone, names), nodes in found.items():
            one = len(nodes) == 1
            verb = f"{'has' if one else 'have'} GPUs free and " if devices else ""
            verb = verb if alone else "also "
            more = " for one more pod" if any(fits for _, fits in nodes) else ""
            clause = _lack_clause(spec, [(n, [lacks[n] for lacks, _ in nodes]) for n in names])
            texts.add(f"{len(nodes)} node{'' if one else 's'} {verb}{clause}{more}")
        return texts


def _lack_clause(spec: PodSpec, lacks: Sequence[tuple[str, Sequence[int]]]) -> str:
    parts = [
        f"{'at least ' if max(by_node) > min(by_node) else ''}{recount.said(name, min(by_node))}"
        f" of {wording.quantity(name, spec.request(name)) if name != 'pods' else '1 place for pods'}"
        for name, by_node in lacks
    ]
    one = lacks and len(lacks[0][1]) == 1
    return f"{'lacks' if one else 'lack'} {' and '.join(parts)}"

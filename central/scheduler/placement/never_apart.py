"""Pods that rules keep from each other and that can never start, because there are fewer nodes, racks or zones than
pods.

An answer is certain until somebody changes the nodes or the pods, as in never_fits.py: nodes count as ready,
uncordoned and empty, and only those that the pods may use.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from central.model import wording
from central.model.pod_rules import Apart, Port, Rules
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement import never_fits
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.snapshot import Snapshot

HOST = "kubernetes.io/hostname"
ALL_IN_ONE = "all must be"  # in a refusal that no new node changes


class _Rule(NamedTuple):
    """A rule that no two of these pods may be in one domain of the node label. key: empty: no two on one node, by a
    host port."""

    why: str
    key: str
    groups: PodCounts


def too_few(snapshot: Snapshot, groups: PodCounts, required: str) -> str:
    """required: the level that all of them must be in one domain of; empty: none. Empty: nothing is certain."""
    for rule in _rules(snapshot, groups):
        needed = sum(count for _, count in rule.groups)
        most = _most(snapshot, rule, required) if needed > 1 else None
        if not most or most >= needed:  # with no node at all, some are still to come
            continue
        noun = "node" if rule.key in ("", HOST) else rule.key.rpartition("/")[2]
        there = f"they may use {wording.counted(most, noun)}"
        if required:
            level = never_fits.level_name(required)
            there = f"no {level} has more than {wording.counted(most, noun)} that they may use"
        if noun == "node" and required in island_masks.ON_NODE:
            there = f"{ALL_IN_ONE} {never_fits.in_one(required)}"
        return (
            f"{wording.NEVER}: {rule.why} no two of {needed} pods may share a {noun}, and {there}"
        )
    return ""


def _rules(snapshot: Snapshot, groups: PodCounts) -> Iterator[_Rule]:
    apart, ports = dict[Apart, PodCounts](), dict[Port, PodCounts]()
    for spec, count in groups:
        rules = spec.rules or Rules()
        for rule in dict.fromkeys(rules.apart):
            if snapshot.pod_counts.matched_by(rule.peers, spec):
                apart[rule] = (*apart.get(rule, ()), (spec, count))
        for port in dict.fromkeys(rules.ports):
            ports[port] = (*ports.get(port, ()), (spec, count))
    for rule, which in apart.items():
        yield _Rule("by their anti-affinity", rule.key, which)
    for which in ports.values():
        yield _Rule("by their host port", "", which)


def _most(snapshot: Snapshot, rule: _Rule, required: str) -> int | None:
    """Returns how many domains of the rule's key one domain of the level has at most, with nodes that the pods may use.
    None: there are nodes without the label, which the rule does not bind."""
    usable = np.zeros(len(snapshot.columns.names), dtype=np.bool_)
    for spec, _ in rule.groups:
        view = snapshot.view(spec)
        found = never_fits.when_empty(view)
        usable[view.lasting().rows if found is None else np.flatnonzero(found.capacity)] = True
    rows = np.flatnonzero(usable)
    of = np.arange(len(usable))
    if rule.key:
        of = snapshot.pod_counts.domains(rule.key).of
        if (of[rows] < 0).any():
            return None
    outer = snapshot.columns.domains.of_level(required, joined=True)[rows]
    pairs = np.unique(np.stack((outer, of[rows])), axis=1)
    return int(np.unique(pairs[0], return_counts=True)[1].max(initial=0))

"""Places gangs whose pods' own rules refer to each other (replicas spread over zones, workers near their
servers): one pod at a time on the draft, so that each pod is filtered with the counts that the pods before
it have changed. It is slower than counting, and used only where counting would be wrong.

A placed pod always satisfies Kubernetes' filters. A refusal is certain for pods of one class with one rule.
With several rules it is the answer of a bounded search that takes no assignment back inside a domain.

Design: docs/design/filters.md
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from central.model import limits
from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.filters import interpod
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement import explain, node_choices
from central.scheduler.placement.domain_choice import DomainChoice
from central.scheduler.placement.request import PlacementRequest
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot

TRIED = 32  # domains of a level that are tried, if a wider one follows


def pods_affect_each_other(snapshot: Snapshot, groups: PodCounts) -> bool:
    """Returns whether placing one of the pods can change where another may go."""
    if len(groups) == 1 and groups[0][1] == 1:
        return False
    if not any(spec.rules or spec.volumes or spec.devices for spec, _ in groups):
        return False
    return any(_affects(snapshot, spec, count, groups) for spec, count in groups)


def _affects(snapshot: Snapshot, spec: PodSpec, count: int, groups: PodCounts) -> bool:
    pod_counts, rules = snapshot.pod_counts, spec.rules
    if _compete_for_volumes(snapshot, spec, groups) or _compete_for_devices(snapshot, spec, groups):
        return True
    if rules is None:
        return False
    others = [other for other, _ in groups if other is not spec and other != spec]
    peers = [*others, *([spec] if count > 1 else [])]
    near = rules.near
    if near is not None and (
        any(pod_counts.matched_by(near.peers, other) for other in others)
        or (pod_counts.matched_by(near.peers, spec) and not pod_counts.matching(near.peers).any())
    ):
        return True
    for apart in rules.apart:
        if any(pod_counts.matched_by(apart.peers, other) for other in others):
            return True
        own = count > 1 and pod_counts.matched_by(apart.peers, spec)
        # One pod per node is counted exactly.
        if own and not pod_counts.domains(apart.key).single():
            return True
    for spread in rules.spread:
        if any(pod_counts.matched_by(spread.peers, other) for other in peers):
            return True
    return any(
        mine.conflicts(port)
        for mine in rules.ports
        for other in others
        for port in (other.rules.ports if other.rules else ())
    )


def _compete_for_volumes(snapshot: Snapshot, spec: PodSpec, groups: PodCounts) -> bool:
    """Returns whether a placed pod leaves fewer volumes for another pod on another node, or for one of another class.
    Equal pods whose volumes belong to one node each can be counted."""
    volumes, pod_counts = spec.volumes, snapshot.pod_counts
    if volumes is None:
        return False
    if volumes.exclusive or pod_counts.volumes.spans_nodes(volumes):
        return True
    others = [v for other, _ in groups if other != spec and (v := other.volumes) is not None]
    classes = {want.storage_class for want, _ in volumes.wants}
    if any(want.storage_class in classes for other in others for want, _ in other.wants):
        return True
    attach: Counter[str] = Counter()
    for other, count in groups:
        for driver, each in other.volumes.attach if other.volumes is not None else ():
            attach[driver] += each * count
        for driver, _ in other.volumes.common if other.volumes is not None else ():
            attach[driver] += 1
    return any(
        driver in dict((*other.attach, *other.common))
        and (pod_counts.attach_capacity(driver) < attach[driver]).any()
        for driver, _ in (*volumes.attach, *volumes.common)
        for other in others
    )


def _compete_for_devices(snapshot: Snapshot, spec: PodSpec, groups: PodCounts) -> bool:
    """The same for the devices of claims."""
    needs = spec.devices
    if needs is None or not needs.asks:
        return False
    others = (other.devices for other, _ in groups if other != spec)
    return snapshot.pod_counts.devices.spans_nodes(needs) or any(
        other is not None and other.asks for other in others
    )


def fit(draft: Draft, request: PlacementRequest, levels: Sequence[str]) -> list[Assignment]:
    """levels: in the order in which they are tried; of each, the domains with enough capacity if the rules are left
    out. Raises DoesNotFit, with the draft as it was."""
    snapshot, groups, mark, most = draft.snapshot, request.groups, len(draft.assignments), 0
    counts = sum(count for _, count in groups)
    without_rules = Counter[PodSpec]()
    for spec, count in groups:  # volumes stay, because the rules cannot add any
        without_rules[replace(spec, rules=None, matched=())] += count
    classes = [(snapshot.view(spec), count) for spec, count in without_rules.items()]
    choice = DomainChoice(snapshot, request, classes, limit=TRIED, widest=levels[-1], tightest=True)
    for level in levels:
        for view, _ in classes:
            view.refresh()
        for rows in choice.candidates(level):
            for within in gpu_masks(snapshot, groups, level, rows, request.existing_gpus):
                assigned = assign_all(draft, groups, rows, within)
                if assigned == counts:
                    return draft.assignments[mark:]
                most = max(most, assigned)
    rules = interpod.describe_rules(spec for spec, _ in groups)
    fit_so = f"{most} of {counts} fit together under {rules}"
    raise DoesNotFit(explain.reason(snapshot, request, fit_so))


def assign_all(draft: Draft, groups: PodCounts, rows: Ints, within: int) -> int:
    """Assigns all pods to the rows, ranks of one class in a row, or none. Returns the largest number that
    could be assigned. within: the GPUs that they may use."""
    mark, most = len(draft.assignments), 0
    for order in _orders(draft.snapshot, groups):
        assigned = _assign(draft, groups, order, rows, within)
        if assigned == sum(count for _, count in groups):
            break
        most = max(most, assigned)
        draft.undo(mark)
    else:
        return most
    rank = {spec: index for index, (spec, _) in enumerate(groups)}
    places: dict[int, int] = {}
    for assignment in draft.assignments[mark:]:
        places.setdefault(assignment.row, len(places))
    draft.assignments[mark:] = sorted(
        draft.assignments[mark:], key=lambda s: (rank[s.spec], places[s.row])
    )
    return assigned


def gpu_masks(
    snapshot: Snapshot,
    groups: PodCounts,
    level: str,
    rows: Ints,
    existing_gpus: int,
    *,
    among: int = -1,
) -> Sequence[int]:
    """The GPU masks of the node's parts of the level that take all of the gang's GPUs, the fullest
    first; at other levels one mask of all GPUs. among: the GPUs that it may use."""
    if level not in island_masks.PARTS:
        return (among,)
    asks = [(snapshot.view(spec), count) for spec, count in groups]
    return island_masks.holding(snapshot, level, int(rows[0]), asks, existing_gpus, among=among)


def _orders(snapshot: Snapshot, groups: PodCounts) -> list[list[int]]:
    """The orders of classes to try: most GPUs first; most devices of claims, then largest volumes first."""
    gpus = [snapshot.view(spec).gpus for spec, _ in groups]
    sizes = [
        max((want.size for want, _ in spec.volumes.wants), default=0) if spec.volumes else 0
        for spec, _ in groups
    ]
    widest = gpu_shares.widest_first([snapshot.view(spec) for spec, _ in groups])
    devices = [_hardness(spec) for spec, _ in groups]
    order = sorted(range(len(groups)), key=lambda i: (-sizes[i], -gpus[i], i))
    largest = sorted(order, key=devices.__getitem__, reverse=True)
    return [widest] if widest == largest else [widest, largest]


def _hardness(spec: PodSpec) -> tuple[int, bool]:
    """Returns how hard the pod's device claims are to satisfy: their devices, and whether these must agree."""
    needs = spec.devices
    if needs is None:
        return 0, False
    claims = [*needs.own, *(claim for _, claim in needs.shared)]
    counts = (each[0].count or limits.CLAIM_DEVICES for claim in claims for each in claim.requests)
    return sum(counts), any(claim.constraints for claim in claims)


def _assign(draft: Draft, groups: PodCounts, order: Sequence[int], rows: Ints, within: int) -> int:
    """Assigns pod after pod, class by class. A class that finds no node is tried again after the others,
    since its affinity may be met then. Returns how many were assigned."""
    snapshot = draft.snapshot
    left = [count for _, count in groups]
    used = np.zeros(len(snapshot.columns.names), dtype=np.bool_)
    moved = True
    while moved and any(left):
        moved = False
        for index in order:
            spec = groups[index][0]
            while left[index]:
                row = node_choices.next_row(snapshot, spec, left[index], rows, used)
                if row is None:
                    break
                try:
                    draft.take(row, spec, 1, within)
                except DoesNotFit:  # no GPU of the island has enough left
                    break
                used[row], moved = True, True
                left[index] -= 1
    return sum(count for _, count in groups) - sum(left)

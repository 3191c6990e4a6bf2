"""The reason for which a gang does not fit now, in one sentence: what it needs, the best candidate and how much of the
gang fits there, what is short or reserved for others, which nodes are refused, and whether it can ever start.

docs/reference/pending-reasons.md lists every clause. Pure, and off the hot path: it runs once per refused gang.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from central.model import wording
from central.model.arrays import UNLIMITED, Ints
from central.model.facts import PodSpec
from central.model.pending_causes import CAPACITY, CONFINED, INVALID, NEVER
from central.scheduler.filters import node_filters
from central.scheduler.inventory import gpu_shares, nic_limits
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement import never_apart, never_fits, pod_kinds
from central.scheduler.placement.domain_choice import RowSums
from central.scheduler.placement.request import PlacementRequest, SubgroupRequest
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.draft import DoesNotFit
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND, NUMA, PCIE_SWITCH
from protos.slicing import is_slice

NOT_TOGETHER = "each pod type fits on its own, but not all together"
SEARCH_LIMIT = "search limit reached; a placement may exist"
WORK_LIMIT = "search budget exhausted, retrying with a larger one"
LARGEST_LIMIT = "largest search budget exhausted, retrying in 2 min"
UNKNOWN_PARTS = {
    ISLAND: "islands unknown",
    NUMA: "NUMA nodes unknown",
    PCIE_SWITCH: "PCIe switches unknown",
}  # of nodes that no agent reports, or not so far
ONE_PER_NODE = "at most one of them per node by their anti-affinity, ports or volumes"
SOME_PER_NODE = "nodes take only so many of them by anti-affinity, ports or volumes"
NO_NODES = "the cluster has no nodes"
_RESERVED_FOR = " of them reserved for "


def reason(snapshot: Snapshot, request: PlacementRequest, together: str = "") -> str:
    """Explains the pod class that is short of the most capacity.

    together: how far the pod-by-pod placement got, for pods whose own rules refer to each other."""
    groups, required = request.groups, request.required
    text = f"{pod_kinds.describe(groups)}{in_one(required)}; "
    if snapshot.columns.row and (never := _fits_nowhere(snapshot, groups)):
        return text + never
    rest = place_of_rest(snapshot, required, request.existing_rows, request.unit)
    if rest is not None and not len(rest.rows):
        return text + rest.clause
    among = rest.rows if rest is not None else None
    named = zip(groups, pod_kinds.kinds(groups), strict=True)
    most_short = sorted(named, key=lambda each: -_shortfall(snapshot, *each[0]))
    for (spec, count), kind in most_short[: 1 if together else None]:
        view = snapshot.view(spec).refresh()
        capacity: RowSums | PodClassCapacity = view
        empty = never_fits.when_empty(view)
        if required in island_masks.PARTS:
            in_part = island_masks.capacity(snapshot, required, view, request.existing_gpus)
            capacity = RowSums(snapshot, in_part)
        fitting, candidate, rows = best_candidate(
            snapshot, capacity, required, rest, empty and empty.capacity, count=count
        )
        if not len(rows):
            return text + candidate
        if together:
            text += together + details(
                snapshot, view, rows, required, among, fitting=0, count=count
            )
            apart = never_apart.too_few(snapshot, groups, required)
            return f"{text}; {apart}" if apart else text
        if fitting < count or len(groups) == 1:
            which = f" {kind}" if len(groups) > 1 else ""
            text += candidate.format(fits=f"fits {fitting} of {count}{which}")
            text += details(snapshot, view, rows, required, among, fitting=fitting, count=count)
            never = never_fits.too_many(snapshot, view, required, count)
            never = never or never_apart.too_few(snapshot, groups, required)
            return f"{text}; {never}" if never else text
    never = never_fits.too_many_gpus(snapshot, groups)
    return text + (never or never_apart.too_few(snapshot, groups, required) or NOT_TOGETHER)


def cause(snapshot: Snapshot, request: PlacementRequest, refused: DoesNotFit) -> str:
    """Returns why the request does not fit, of pending_causes.CAUSES."""
    if refused.cause:
        return refused.cause
    if all(_is_confined(snapshot, part) for part in request.subgroups or (request,)):
        return CONFINED
    if never_apart.ALL_IN_ONE in refused.why:
        return INVALID
    return NEVER if wording.NEVER in refused.why else CAPACITY


def _is_confined(snapshot: Snapshot, part: PlacementRequest | SubgroupRequest) -> bool:
    """Returns whether the pods must join running members on a node, or running members that are in no single domain."""
    rest = place_of_rest(snapshot, part.required, part.existing_rows)
    return rest is not None and (not len(rest.rows) or part.required in island_masks.ON_NODE)


def _fits_nowhere(snapshot: Snapshot, groups: PodCounts) -> str:
    """Returns why one of the pod classes can never start, on any node."""
    for (spec, count), kind in zip(groups, pod_kinds.kinds(groups), strict=True):
        view = snapshot.view(spec)
        which = f"{count} {kind}" if len(groups) > 1 else ""
        if not view.by_row.any() and (never := never_fits.no_node_for_one(snapshot, view, which)):
            return never
    return ""


def in_one(required: str) -> str:
    return f" {never_fits.in_one(required)}" if required else ""


def _best_node(snapshot: Snapshot, capacity: Ints, lasting: Ints | None) -> tuple[int, str, Ints]:
    """The largest capacity that a node has, of those that take the most when empty, the clause that names the node, and
    its row."""
    if lasting is not None and len(lasting):
        capacity = np.where(lasting == lasting.max(), capacity, 0)
    if not len(capacity) or not capacity.any():
        clause = "the best node {fits}" if snapshot.columns.row else NO_NODES
        return 0, clause, np.arange(len(snapshot.columns.names))
    best = np.lexsort((snapshot.columns.name_rank(), -capacity))[0]
    name = snapshot.columns.names[best]
    return int(capacity[best]), f"best candidate node {name} {{fits}}", np.array([best])


def details(
    snapshot: Snapshot,
    view: PodClassCapacity,
    rows: Ints,
    required: str,
    among: Ints | None,
    *,
    fitting: int,
    count: int,
) -> str:
    """Returns in brackets the free amounts on the rows and those that are short there for that many pods, and the nodes
    that are refused; empty: none of these. fitting: how many of the pods fit. among: the rows that the pods are
    confined to; None: not confined."""
    short = _short_of(snapshot, view, rows, required, fitting=fitting, count=count)
    return never_fits.in_brackets([*short, *_not_considered(snapshot, view, required, among)])


class RestPlace(NamedTuple):
    """The place of the running members that pending pods must join. clause: names the domain; {fits} stands for the
    numbers. rows: those of the domain; empty: the members are in no single one."""

    clause: str
    rows: Ints


def place_of_rest(
    snapshot: Snapshot, required: str, existing_rows: Sequence[int], unit: str = "gang"
) -> RestPlace | None:
    """Returns the place of the running members. None: there are no members, or no level is required of the unit."""
    if not required or not existing_rows:
        return None
    rows, names = np.array(existing_rows, dtype=np.int64), snapshot.columns.names
    level, rest = never_fits.level_name(required), f"the rest of the {unit} is"
    domains = snapshot.columns.domains
    first = domains.levels.index(required) if required in domains.levels else len(domains.levels)
    for index in range(first, len(domains.levels)):  # what is on one node is in one rack
        of = domains.of[index]
        at = int(of[rows[0]])
        if at >= 0 and (of[rows] == at).all():
            name = f"{never_fits.level_name(domains.levels[index])} {domains.names[index][at]}"
            return RestPlace(f"{name}, where {rest}, {{fits}}", np.flatnonzero(of == at))
    if len(rows) == 1:
        inside = f"the {level} of " if required in island_masks.PARTS else ""
        return RestPlace(f"{inside}node {names[rows[0]]}, where {rest}, {{fits}}", rows)
    if first == len(domains.levels):
        return _nowhere(f"{rest} on {_listed('node', [names[row] for row in rows.tolist()])}")
    within = domains.of[first][rows]
    if len(outside := rows[within < 0]):
        which = "which are" if len(outside) > 1 else "which is"
        nodes = _listed("node", [names[row] for row in outside.tolist()])
        return _nowhere(f"{rest} on {nodes}, {which} in no {level}")
    at_names = [domains.names[first][each] for each in np.unique(within).tolist()]
    return _nowhere(f"{rest} in {_listed(level, at_names)}")


def _nowhere(clause: str) -> RestPlace:
    return RestPlace(clause, np.zeros(0, dtype=np.int64))


def _listed(what: str, names: Sequence[str]) -> str:
    """Returns the names as in "node a" or "2 nodes: a, b"."""
    return (
        f"{what} {names[0]}" if len(names) == 1 else f"{len(names)} {what}s: {wording.some(names)}"
    )


def best_candidate(
    snapshot: Snapshot,
    capacity: RowSums | PodClassCapacity,
    required: str,
    rest: RestPlace | None,
    empty: Ints | None = None,
    *,
    count: int = 0,
) -> tuple[int, str, Ints]:
    """Returns how much fits in the best candidate, the clause that names it ({fits} stands for the numbers), and its
    rows. empty: by row, what fits when nothing runs there; a domain that then takes all of the count is better than one
    that does not. None: unknown."""
    if rest is not None:
        return int(capacity.by_row[rest.rows].sum()), rest.clause, rest.rows
    domains = snapshot.columns.domains
    if required in domains.levels:
        level = domains.levels.index(required)
        if empty is not None:
            empty = np.minimum(RowSums(snapshot, empty).by_domain[level], count)
        return _best_domain(snapshot, capacity.by_domain[level], required, empty)
    if required:
        if empty is not None:
            empty = np.minimum(empty, count)
        return _best_node(snapshot, capacity.by_row, empty)
    clause = "the cluster {fits}" if snapshot.columns.row else NO_NODES
    return int(capacity.by_row.sum()), clause, np.arange(len(snapshot.columns.names))


def _best_domain(
    snapshot: Snapshot, capacity: Ints, required: str, lasting: Ints | None = None
) -> tuple[int, str, Ints]:
    """The largest capacity that a domain of the level has, of those that take the most when empty, the clause that
    names the domain, and its rows. capacity, lasting: by domain of the level."""
    domains = snapshot.columns.domains
    level = domains.levels.index(required)
    with_nodes = domains.occupied(level)
    if not len(with_nodes):
        clause = f"no node has label {required}, so there is no {never_fits.level_name(required)}"
        return 0, f"{wording.NEVER}: {clause}", np.zeros(0, dtype=np.int64)
    if lasting is not None:
        with_nodes = with_nodes[lasting[with_nodes] == lasting[with_nodes].max()]
    most = with_nodes[capacity[with_nodes] == capacity[with_nodes].max()]
    best = int(most[domains.ranks(level)[most].argmin()])
    clause = f"best candidate {domains.names[level][best]} {{fits}}"
    return int(capacity[best]), clause, np.flatnonzero(domains.of[level] == best)


def _shortfall(snapshot: Snapshot, spec: PodSpec, count: int) -> float:
    return count / (1 + int(snapshot.view(spec).refresh().by_row.sum()))


def _short_of(
    snapshot: Snapshot,
    view: PodClassCapacity,
    rows: Ints,
    required: str,
    *,
    fitting: int,
    count: int,
) -> list[str]:
    """The free GPUs of the candidate's nodes that can serve such a pod when nothing else runs there, and what stops
    more of the pods."""
    usable = _usable_now(view, rows)
    if (empty := never_fits.when_empty(view)) is not None:
        usable = usable[empty.able[usable]]
    details = []
    if view.gpus and len(usable):
        details.append(_free_gpus(snapshot, usable, view.gpus, required))
    slices = [name for name, _ in view.spec.requests if is_slice(name)]
    details += [_free_slices(snapshot, name, usable) for name in slices]
    if fitting >= count or not len(usable):
        return details
    if view.share:
        details.append(_free_shares(snapshot, view, usable))
    most = np.full(len(usable), UNLIMITED)  # of the pods by row, as NICs allow
    if view.nics and snapshot.columns.nics:
        by_row = nic_limits.capacities(snapshot.columns.nics, usable.tolist(), view.spec)
        most = np.array(by_row, dtype=np.int64)
        if (by_nics := sum(by_row)) < count:
            left = nic_limits.most_left(snapshot.columns.nics, usable.tolist(), view.spec)
            details.append(f"short of {wording.nics(view.spec)}{left}: enough for {by_nics}")
    details += _lacking(snapshot, view, usable, most)
    by_volumes = view.interpod.volume_capacity() if view.interpod is not None else None
    if by_volumes is not None and (enough := int(by_volumes[usable].sum())) < count:
        details.append(f"short of volumes: enough for {enough}")
    elif view.interpod is not None:
        limits = view.interpod.limits()[usable]
        enough = int(np.minimum(limits, count).sum())
        if enough < count and view.spec.devices is not None:
            details.append(f"short of devices of claims: enough for {enough}")
        elif enough < count:
            rule = ONE_PER_NODE if (limits <= 1).all() else SOME_PER_NODE
            details.append(f"{rule}: enough for {enough}")
    return details


def _lacking(snapshot: Snapshot, view: PodClassCapacity, rows: Ints, most: Ints) -> list[str]:
    """Counts the nodes by the resources that stop one more pod there, most nodes first: where GPUs, NICs and rules
    allow one more, and where these stop it as well. Gives what lacks on the node that lacks least, and what is asked.
    most: pods that NICs allow, by row."""
    columns, free = snapshot.columns, dict[str, tuple[Ints, int]]()
    if view.share:
        shares = gpu_shares.capacity(columns.gpus, rows, view.share, view.least)
        most = np.minimum(most, shares)
    if view.interpod is not None:
        most = np.minimum(most, view.interpod.limits()[rows])
    names = never_fits.resource_names(snapshot, view)
    has_slices = any(is_slice(name) for name, _ in view.spec.requests)
    has_gpus = bool(view.gpus or view.share or has_slices)
    for column, amount in zip(view.columns.tolist(), view.amounts.tolist(), strict=True):
        left = np.maximum(columns.free[rows, column] if column else columns.gpus.count[rows], 0)
        if not column or is_slice(names[column]):
            most = np.minimum(most, left // amount)
        elif names[column] not in never_fits.NOT_LASTING:  # shares and NIC limits are counted apart
            free[names[column]] = left, amount
    fits = np.minimum.reduce([most, *(left // amount for left, amount in free.values())])
    stops = {name: left // amount == fits for name, (left, amount) in sorted(free.items())}
    groups: dict[tuple[bool, tuple[str, ...]], list[int]] = {}
    for at in np.flatnonzero(np.logical_or.reduce([*stops.values(), np.zeros(len(rows), bool)])):
        which = tuple(name for name in stops if stops[name][at])
        groups.setdefault((bool(fits[at] < most[at]), which), []).append(int(at))
    found = []
    for (alone, which), rows_at in groups.items():
        lacks = [
            (name, (free[name][1] * (fits + 1) - free[name][0])[rows_at], free[name][1])
            for name in which
        ]
        has = wording.plural(len(rows_at), "has GPUs free and ", "have GPUs free and ")
        also = (has if has_gpus else "") if alone else "also "
        more = " for one more pod" if fits[rows_at].any() else ""
        found.append(
            (-len(rows_at), f"{wording.counted(len(rows_at), 'node')} {also}{_lack(lacks)}{more}")
        )
    return [text for _, text in sorted(found)]


def _lack(lacks: Sequence[tuple[str, Ints, int]]) -> str:
    """Returns a clause such as "lack at least 3 of 4 cpu". lacks: by resource, its name, what lacks by node, and what a
    pod requests."""
    said = [
        f"{'at least ' if (by_node > by_node.min()).any() else ''}{wording.amount(name, int(by_node.min()))}"
        f" of {wording.quantity(name, asked) if name != 'pods' else '1 place for pods'}"
        for name, by_node, asked in lacks
    ]
    return f"{wording.plural(len(lacks[0][1]), 'lacks', 'lack')} {' and '.join(said)}"


def _usable_now(view: PodClassCapacity, rows: Ints) -> Ints:
    """Returns those of the rows that the node filters and the rules between pods let the pods use now."""
    usable = rows[view.passed(rows)]
    if view.interpod is None:
        return usable
    found: Ints = usable[view.interpod.limits()[usable] > 0]
    return found


def _free_gpus(snapshot: Snapshot, rows: Ints, asked: int, required: str) -> str:
    """Returns how many GPUs no pod has, the most on one node, or in one part of a node that is required, if that is
    less than a pod asks, how many cannot be used, and how many are reserved for other gangs."""
    counted = np.zeros(len(snapshot.columns.names), dtype=np.bool_)
    counted[rows] = True
    free = snapshot.gpus_with_reserved()
    left, reserved_gpus = free - snapshot.columns.gpus.count, snapshot.reserved_gpus.values()
    holders = set[str]()
    for taken_before in (False, True):  # what two reserve is counted for the first
        for each in reserved_gpus:
            amounts = each.taken if taken_before else each.free
            gone = np.clip(amounts, 0, left[each.rows])
            left[each.rows] -= gone
            if gone[counted[each.rows]].any():
                holders.add(each.name)
    owners = [each.name for each in reserved_gpus if each.name in holders]
    here, most = int(free[rows].sum()), int(free[rows].max())
    reserved = here - int(snapshot.columns.gpus.count[rows].sum())
    total = int(snapshot.columns.allocatable[rows, 0].sum())
    text = f"{here} of {total} GPUs free on {wording.counted(len(rows), 'node')}"
    if most < asked <= here:
        text += f", at most {most} on one"
    elif required in island_masks.PARTS and not reserved:
        part = _most_in_part(snapshot, rows, required)
        text += f", at most {part} {never_fits.in_one(required)}" if 0 < part < asked else ""
    ill = snapshot.columns.gpus.installed[rows] - snapshot.columns.allocatable[rows, 0]
    if (lost := int(np.maximum(ill, 0).sum())) and most < asked:
        text += f", {lost} more unhealthy or not offered"
    return f"{text}, {reserved}{_RESERVED_FOR}{wording.some(owners)}" if reserved else text


def _most_in_part(snapshot: Snapshot, rows: Ints, level: str) -> int:
    """Returns the most GPUs that no pod has in one part of a node."""
    gpus = snapshot.columns.gpus
    return max(
        (
            (mask & gpus.free_mask[row]).bit_count()
            for row in rows.tolist()
            for mask in island_masks.masks(gpus.shape[row], level)
        ),
        default=0,
    )


def names_holders(reason: str, holders: str) -> bool:
    """Returns whether the reason says already that these gangs, as wording.some() lists them, hold free GPUs."""
    said = f"{_RESERVED_FOR}{holders}"
    return any(f"{said}{end}" in reason for end in (";", ")"))


def _free_shares(snapshot: Snapshot, view: PodClassCapacity, rows: Ints) -> str:
    gpus = snapshot.columns.gpus
    if not any(any(gpus.offered[row]) for row in rows.tolist()):
        return "no node there offers GPU shares"
    total, most = gpu_shares.remaining(gpus, rows, view.least)
    enforced = f" whose memory is enforced by {view.spec.memory_level}" if view.least else ""
    return f"{total} hundredths of GPUs{enforced} free, at most {most} on one GPU"


def _free_slices(snapshot: Snapshot, name: str, rows: Ints) -> str:
    column = snapshot.columns.column.get(name)
    if column is None or not (total := int(snapshot.columns.allocatable[rows, column].sum())):
        nodes = [node for node in snapshot.columns.nodes if node is not None]
        others = {
            each for node in nodes for each, n in node.allocatable.items() if n and is_slice(each)
        }
        there = f", only {wording.some(map(wording.resource, others))}" if others - {name} else ""
        return f"there are no {wording.resource(name)}{there}"
    free = int(np.maximum(snapshot.columns.free[rows, column], 0).sum())
    return (
        f"{free} of {total} {wording.resource(name)} free on {wording.counted(len(rows), 'node')}"
    )


def _not_considered(
    snapshot: Snapshot, view: PodClassCapacity, required: str, among: Ints | None
) -> list[str]:
    """Returns how many nodes the filters or the rules between pods refuse, by all that stops a pod there. Nodes that
    are too small for a pod even if empty are left out. Then how many are not known well enough for the level."""
    whys = _refusals(snapshot, view, required if among is None else "")
    empty = never_fits.when_empty(view)
    inside = set(whys) if among is None else set(among.tolist())
    groups: dict[tuple[tuple[str, ...], tuple[int, ...]], list[int]] = {}
    lack = view.amounts - np.maximum(snapshot.columns.free[:, view.columns], 0)
    for index in np.flatnonzero(view.columns == 0).tolist():
        lack[:, index] = view.gpus - snapshot.columns.gpus.count
    for row, found in whys.items():
        if row in inside and (empty is None or empty.able[row]):
            short = tuple(np.flatnonzero(lack[row] > 0).tolist()) if empty is not None else ()
            groups.setdefault((tuple(found), short), []).append(row)
    reasons, names = Counter[str](), never_fits.resource_names(snapshot, view)
    for (why, short), rows in groups.items():
        lacks = [
            (names[int(view.columns[index])], lack[rows, index], int(view.amounts[index]))
            for index in short
        ]
        reasons[", ".join([*why, *([_lack(lacks)] if lacks else [])])] += len(rows)
    if required in UNKNOWN_PARTS and view.gpus:
        passed = view.passed_rows()
        passed = passed if among is None else passed[np.isin(passed, among)]
        rows_with = never_fits.with_gpus(snapshot, passed).tolist()
        shapes = snapshot.columns.gpus.shape
        unknown = sum(island_masks.unknown(shapes[row], required) for row in rows_with)
        reasons.update({UNKNOWN_PARTS[required]: unknown} if unknown else {})
    return never_fits.nodes_refused(reasons)


def _refusals(snapshot: Snapshot, view: PodClassCapacity, required: str) -> dict[int, list[str]]:
    """Returns by row why the filters and the rules between pods refuse the node, and whether it is in no domain of the
    level."""
    now, domains = snapshot.filter_results.now, snapshot.columns.domains
    found = {row: node_filters.refusals(view.spec, node, now) for row, node in view.refused_nodes()}
    if view.interpod is not None:
        for row in (*found, *view.passed_rows().tolist()):
            if beside := view.interpod.reasons(row):
                found[row] = [*found.get(row, ()), *beside]
    if required in domains.levels:
        for row in np.flatnonzero(domains.of[domains.levels.index(required)] < 0).tolist():
            if snapshot.columns.nodes[row] is not None:
                found.setdefault(row, []).append(f"in no {never_fits.level_name(required)}")
    return found

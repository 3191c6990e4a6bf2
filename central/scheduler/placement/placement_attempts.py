"""The attempts for a gang: first all of its pending pods, then only its minimum, in any composition. Once the minimum
runs, the others follow in further attempts. Each attempt lists its pods in the order of the request's groups, so that
pods and assignments can be matched.

Design: docs/design/placement.md
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations_with_replacement, groupby
from operator import attrgetter

import numpy as np

from central.model.facts import Pairs, PodSpec, Roles
from central.scheduler.inventory.pods import Pod, PodCounts
from central.scheduler.placement import (
    Bundle,
    PlacementRequest,
    RolePreferences,
    SubgroupRequest,
    minimum_choices,
)
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from central.scheduler.state.subgroups import BundleKey, Subgroup, SubgroupDivision, Unit
from protos.names import BALANCE, CLIQUES, COMPUTE_DOMAIN, GPU, NODE, PARTS_OF_NODE, SPREAD
from protos.slicing import requests_devices

GANGS_ADDED_UP = 64
# kinds of pods in a gang of which any two are compared; with more there are no preferences
ROLES_MOST = 256
SURPLUS_UNITS = 8  # subgroups or pods above the minimum that are tried one by one
TaskRole = tuple[str, PodSpec]  # pods of one task with unlike specs are roles of their own


def attempts(
    state: ClusterState, gang: Gang, missing: int, default_placement: str
) -> tuple[list[list[Pod]], tuple[PlacementRequest, ...]]:
    """The pods of each attempt and its request, most pods first. missing: how many more pods the gang needs
    to reach its minimum."""
    policy = gang.placement or default_placement
    if gang.subgroups:
        tried, found = _subgroup_attempts(state, gang, missing, spread=policy == SPREAD)
        found = tuple(replace(one, balanced=policy == BALANCE) for one in found)
    else:
        tried, found = _attempts(state, gang, missing, policy)
    if failed := state.snapshot.last_choice.own.get(gang.key[:2], ()):
        rows = state.snapshot.columns.row
        known = tuple(rows[name] for name in failed if name in rows)
        found = tuple(replace(request, failed_rows=known) for request in found)
    return tried, found


def _attempts(
    state: ClusterState, gang: Gang, missing: int, policy: str
) -> tuple[list[list[Pod]], tuple[PlacementRequest, ...]]:
    """Returns the attempts for a gang without subgroups, as attempts()."""
    spread, balanced = policy == SPREAD, policy == BALANCE
    pods = gang.counts.waiting
    least = [] if missing == len(pods) else _minimum(state, gang, missing)
    required, preferred = required_level(state, gang), _preferred(state, gang)
    rows, gpus = _existing_place(state, gang.counts.placed)
    terms = gang.object.roles if gang.object is not None else None
    tried, found = list[list[Pod]](), list[PlacementRequest]()
    for attempt in (pods, *least):
        if terms is not None:
            ordered, roles = _by_role(state, gang, attempt, terms)
            groups = _counts(ordered)
        else:
            ordered, groups = attempt, _counts(attempt)
            roles = _all_apart(state, gang, groups) if spread else None
        tried.append(ordered)
        apart = spread and terms is None
        level = _without_part(required, groups)
        found.append(_request(groups, level, rows, gpus, preferred, (), roles, apart, balanced))
    if former := _former_rows(state, pods):
        found = [replace(request, former_rows=former) for request in found]
    return tried, tuple(found)


def _former_rows(state: ClusterState, pods: Sequence[Pod]) -> tuple[int, ...]:
    """The nodes that earlier pods of the pods' controllers have left."""
    if not state.owners.former.by_owner:
        return ()
    rows = state.snapshot.columns.row
    found: dict[int, None] = {}
    for fact in {pod.seen.owner: pod.seen for pod in pods}.values():
        if (owner := state.owners.owner_of(fact)) is not None:
            nodes = state.owners.former.nodes(owner)
            found |= dict.fromkeys(rows[node] for node in nodes if node in rows)
    return tuple(found)


def least(requests: Sequence[PlacementRequest]) -> tuple[int, int]:
    """GPUs of each pod, and the fewest pods in one of the requests; (0, 0) if these have pods of several kinds."""
    kinds = {spec for request in requests for spec, _ in request.groups}
    if len(kinds) != 1:
        return 0, 0
    return kinds.pop().request(GPU), min(request.groups[0][1] for request in requests)


def scarce(state: ClusterState, gangs: Sequence[Gang]) -> bool:
    """Returns whether the pending pods of all these gangs ask for more than is free, by sums over the cluster. True if
    there are too many gangs to add up."""
    if len(gangs) > GANGS_ADDED_UP:
        return True
    snapshot = state.snapshot
    asked = [(snapshot.view(spec), n) for g in gangs for spec, n in _counts(g.counts.waiting)]
    needed = np.zeros(snapshot.columns.width, dtype=np.int64)
    for view, count in asked:
        needed[view.columns] += view.amounts * count
    return bool((needed > np.maximum(snapshot.columns.free, 0).sum(axis=0)).any())


def _minimum(state: ClusterState, gang: Gang, missing: int) -> list[list[Pod]]:
    """Returns the choices of pods that the gang may start with, or grow by. The first ranks are preferred, and the gang
    claims capacity for them, so they come first and last."""
    waiting, count = gang.counts.waiting, max(missing, 1)
    short = gang.short_tasks()
    least = minimum_choices.smallest(state.snapshot, waiting, count, short)
    if not least:
        return [gang.pods_to_start(missing) or waiting[:1]]
    choices = list(minimum_choices.others(state.snapshot, waiting, count, short))
    return [least, *choices, least] if choices else [least]


def re_place(state: ClusterState, gang: Gang, pods: Sequence[Pod]) -> PlacementRequest:
    """The request for these running pods if they had to move, while the gang's other pods stay."""
    staying = [pod for pod in gang.counts.placed if pod not in pods]
    ordered = sorted(pods, key=_order)
    return PlacementRequest(
        _counts(ordered), required_level(state, gang), *_existing_place(state, staying)
    )


def equivalence_key(
    state: ClusterState,
    gang: Gang,
    requests: tuple[PlacementRequest, ...],
    tenant: tuple[object, ...] = (),
) -> int:
    """A number shared by all gangs without placed pods that ask for the same on the same terms. tenant: what else
    their queue distinguishes."""
    if gang.counts.placed:
        return 0
    runs_for = frozenset(pod.seen.runs_for_s for pod in gang.counts.waiting)
    least = gang.object.min_resources if gang.object is not None else ()
    key = (
        gang.queue,
        gang.priority,
        runs_for,
        gang.preempts,
        gang.started,
        requests,
        least,
        tenant,
    )
    return state.pending.equivalence(key)


# --- roles -------------------------------------------------------------------------


def _existing(state: ClusterState, gang: Gang) -> list[Pod]:
    rows = state.snapshot.columns.row
    return [pod for pod in gang.counts.placed if pod.alive and pod.node in rows]


def _all_apart(state: ClusterState, gang: Gang, groups: PodCounts) -> RolePreferences | None:
    """Spreading: every pod has anti-affinity to every other, and existing members count as the first
    role. None if there is no other pod, or too many kinds."""
    if len(groups) > ROLES_MOST:
        return None
    rows = state.snapshot.columns.row
    existing = Counter(rows[pod.node] for pod in _existing(state, gang)) if groups else Counter()
    if sum(count for _, count in groups) + existing.total() < 2:
        return None
    members = tuple((row, 0, count) for row, count in sorted(existing.items()))
    return RolePreferences(groups, (), _pairs(len(groups)), members)


def _by_role(
    state: ClusterState, gang: Gang, pods: Sequence[Pod], terms: Roles
) -> tuple[list[Pod], RolePreferences | None]:
    """The pods role by role; None if none of the gang's terms is about them."""
    index, roles = _gang_roles(state, gang, pods, terms)
    ordered = sorted(pods, key=lambda pod: index[_role(pod)])
    return ordered, (
        _with_pods(index, roles, pods) if roles.affinity or roles.anti_affinity else None
    )


def _gang_roles(
    state: ClusterState, gang: Gang, pods: Sequence[Pod], terms: Roles | None
) -> tuple[dict[TaskRole, int], RolePreferences]:
    """The roles of the pods and of the gang's existing members by index, and their preferences without
    pods to place; without pairs if there are too many. terms: None means that all pods should be apart."""
    rows, existing = state.snapshot.columns.row, _existing(state, gang)
    index: dict[TaskRole, int] = {}
    for pod in (*pods, *existing):
        index.setdefault(_role(pod), len(index))
    tasks = [task for task, _ in index] if len(index) <= ROLES_MOST else []
    members = Counter((rows[pod.node], index[_role(pod)]) for pod in existing)
    return index, RolePreferences(
        tuple((spec, 0) for _, spec in index),
        _among(tasks, terms.near) if terms is not None else (),
        _among(tasks, terms.apart) if terms is not None else _pairs(len(tasks)),
        tuple((row, role, count) for (row, role), count in sorted(members.items())),
    )


def _with_pods(
    index: dict[TaskRole, int], roles: RolePreferences, pods: Sequence[Pod]
) -> RolePreferences:
    counts = Counter(index[_role(pod)] for pod in pods)
    return replace(
        roles, pods=tuple((spec, counts[role]) for role, (spec, _) in enumerate(roles.pods))
    )


def _role(pod: Pod) -> TaskRole:
    return pod.seen.task, pod.spec


def _pairs(roles: int) -> tuple[tuple[int, int], ...]:
    return tuple(combinations_with_replacement(range(roles), 2))


def _among(tasks: Sequence[str], terms: Pairs) -> tuple[tuple[int, int], ...]:
    """The pairs of roles whose tasks are one of the terms."""
    of_task: dict[str, list[int]] = {}
    for role, task in enumerate(tasks):
        of_task.setdefault(task, []).append(role)
    return tuple(
        sorted(
            {
                (min(a, b), max(a, b))
                for one, other in terms
                for a in of_task.get(one, ())
                for b in of_task.get(other, ())
            }
        )
    )


# --- subgroups ---------------------------------------------------------------------


def _subgroup_attempts(
    state: ClusterState, gang: Gang, missing: int, *, spread: bool
) -> tuple[list[list[Pod]], tuple[PlacementRequest, ...]]:
    division = gang.division()
    every = division.units()
    if missing:
        least = division.units_to_start(missing, gang.short_tasks())
        tried = [every, least] if len(least) < len(every) else [every]
    else:
        tried = [every, *division.steps()[:SURPLUS_UNITS]]
    required, place = required_level(state, gang), _existing_place(state, gang.counts.placed)
    attempts, requests = [], []
    for units in tried:
        pods, subgroups = _subgroup_requests(state, gang, division, units, spread=spread)
        attempts.append(pods)
        roles = None
        if len(subgroups) == 1 and all(subgroup is None for subgroup, _ in units):
            roles, subgroups = subgroups[0].roles, ()
        groups = _counts(pods)
        level = _without_part(required, groups)
        requests.append(PlacementRequest(groups, level, *place, "", subgroups, roles))
    return attempts, tuple(requests)


def _subgroup_requests(
    state: ClusterState,
    gang: Gang,
    division: SubgroupDivision,
    units: Sequence[Unit],
    *,
    spread: bool,
) -> tuple[list[Pod], tuple[SubgroupRequest, ...]]:
    """The pods subgroup by subgroup, and their requests; equal subgroups follow each other."""
    terms, found = gang.object.roles if gang.object is not None else None, None
    if terms is not None or spread:
        found = _gang_roles(state, gang, [pod for _, pods in units for pod in pods], terms)
        if len(found[0]) > ROLES_MOST:
            found = None
    merged: dict[int, tuple[Subgroup | None, list[Pod]]] = {}
    for subgroup, pods in units:
        merged.setdefault(id(subgroup), (subgroup, []))[1].extend(pods)
    equal: dict[SubgroupRequest, list[list[Pod]]] = {}
    bundles = _Bundles(state, division)
    for subgroup, pods in merged.values():
        pods.sort(key=_order)
        roles = None
        if found is not None:
            index = found[0]
            pods.sort(key=lambda pod: index[_role(pod)])
            roles = _with_pods(*found, pods)
        request = SubgroupRequest(_counts(pods), roles=roles)
        if subgroup is not None:
            required = _level(state, subgroup.policy.required, subgroup.policy.tier)
            required = _without_part(required, request.groups)
            rows, gpus = _existing_place(state, subgroup.placed)
            request = replace(request, required=required, existing_rows=rows, existing_gpus=gpus)
            if subgroup.policy.layers:
                request = replace(request, bundles=bundles.of(subgroup))
        equal.setdefault(request, []).append(pods)
    ordered = [pod for copies in equal.values() for pods in copies for pod in pods]
    return ordered, tuple(replace(key, copies=len(copies)) for key, copies in equal.items())


class _Bundles:
    """Numbers the bundles of one request in the order in which its subgroups name them."""

    def __init__(self, state: ClusterState, division: SubgroupDivision) -> None:
        self._state, self._division = state, division
        self._placed: dict[BundleKey, list[Pod]] | None = None
        self._found: dict[BundleKey, Bundle] = {}

    def of(self, subgroup: Subgroup) -> tuple[Bundle, ...]:
        if self._placed is None:
            self._placed = self._division.placed_by_bundle()
        for key, layer in zip(subgroup.bundles(), subgroup.policy.layers, strict=True):
            if key not in self._found:
                level = _level(self._state, layer.required, None)
                rows, _ = _existing_place(self._state, self._placed.get(key, ()))
                self._found[key] = Bundle(len(self._found), level, rows)
        return tuple(self._found[key] for key in subgroup.bundles())


# --- levels, existing members, counts ----------------------------------------------


def required_level(state: ClusterState, gang: Gang) -> str:
    """The widest level that the gang may span. Without one in its object or pods, pods of a ComputeDomain share an
    NVLink clique if that is a level of the network tree."""
    tier = gang.object.required_tier if gang.object is not None else None
    if tier is None and not gang.has_podgroup:
        tier = gang.counts.tier
    claims = state.podclasses.device_claims
    if gang.required or tier is not None or not claims.used:
        return _level(state, gang.required, tier)
    known = state.snapshot.columns.domains.levels
    clique = next((level for level in CLIQUES if level in known), "")
    pods = (*gang.counts.waiting, *gang.counts.placed) if clique else ()
    return clique if any(claims.asks_for(pod.seen.uid, COMPUTE_DOMAIN) for pod in pods) else ""


def _without_part(level: str, groups: PodCounts) -> str:
    """Pods without GPUs that are to share a part of a node share the node."""
    if level not in PARTS_OF_NODE:
        return level
    return level if any(requests_devices(spec.requests) for spec, _ in groups) else NODE


def _preferred(state: ClusterState, gang: Gang) -> str:
    """The level that the gang prefers not to exceed."""
    tier = gang.object.preferred_tier if gang.object is not None else None
    return _level(state, gang.preferred, tier)


def _level(state: ClusterState, named: str, tier: int | None) -> str:
    """A level by its name or by its tier; tier 1 is the narrowest."""
    levels = state.snapshot.columns.domains.levels
    if named or tier is None:
        return state.network.level_named(named, levels) if named else ""
    return state.network.level_of_tier(tier, levels)


def _existing_place(state: ClusterState, placed: Sequence[Pod]) -> tuple[tuple[int, ...], int]:
    """The rows of these pods, and the mask of their GPUs if it is one row."""
    if not placed:
        return (), 0
    rows = state.snapshot.columns.row
    existing = [pod for pod in placed if pod.alive and pod.node in rows]
    found = tuple(sorted({rows[pod.node] for pod in existing}))
    gpus = 0
    for pod in existing if len(found) == 1 else ():
        gpus |= pod.gpus
    return found, gpus


def _counts(pods: Sequence[Pod]) -> PodCounts:
    """Pods by spec, each spec where it comes first."""
    if len(pods) == 1:
        return ((pods[0].spec, 1),)
    counts: dict[PodSpec, int] = {}
    for spec, together in groupby(pods, key=_spec):
        counts[spec] = counts.get(spec, 0) + sum(1 for _ in together)
    return tuple(counts.items())


_request = lru_cache(maxsize=1 << 10)(PlacementRequest)  # thousands of gangs ask for the same
_spec = attrgetter("spec")
_order = attrgetter("seen.order")

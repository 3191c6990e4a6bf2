"""What is tried for a gang: which of its pods at once, as kinds with their numbers, and on what terms."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, groupby
from operator import attrgetter

from central.model.facts import Pairs, PodSpec, Roles
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest, RolePreferences, SubgroupRequest
from central.scheduler.placement.request import Groups
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from central.scheduler.state.subgroups import Subgroup, Unit
from protos.names import SPREAD

UNITS_TRIED = 8  # groups beyond the minimum, one by one


def attempts(
    state: ClusterState, gang: Gang, missing: int, default_placement: str
) -> tuple[list[list[Pod]], tuple[PlacementRequest, ...]]:
    """All that wait, else the minimum. Once that is placed, the others come one by one."""
    if gang.subgroups:
        return _group_by_group(state, gang, missing, default_placement)
    pods = gang.waiting()
    anchors, anchor_gpus = _anchors(state, gang.placed())
    required, preferred = _required(state, gang), _preferred(state, gang)
    tried = [pods] if missing == len(pods) else [pods, gang.pods_to_start() or pods[:1]]
    if gang.object is not None and (roles := gang.object.roles) is not None:
        crews = [_crew(state, gang, roles, attempt) for attempt in tried]
        return [pods for pods, _ in crews], tuple(
            PlacementRequest(_groups(pods), required, anchors, anchor_gpus, preferred, crew=crew)
            for pods, crew in crews
        )
    spread = (gang.placement or default_placement) == SPREAD
    return tried, tuple(
        PlacementRequest(
            groups := _groups(attempt),
            required,
            anchors,
            anchor_gpus,
            preferred,
            crew=_apart(state, gang, groups) if spread else None,
            spread=spread,
        )
        for attempt in tried
    )


def _apart(state: ClusterState, gang: Gang, groups: Groups) -> RolePreferences | None:
    """Everybody would rather be on a node of their own."""
    rows, specs = state.snapshot.columns.row, [spec for spec, _ in groups]
    there = Counter(
        rows[pod.node] for pod in gang.placed() if pod.alive and pod.node in rows and specs
    )
    if sum(count for _, count in groups) + there.total() < 2:
        return None
    pairs = tuple(combinations_with_replacement(range(len(specs)), 2))
    have = tuple((row, 0, count) for row, count in sorted(there.items()))
    return RolePreferences(groups, apart=pairs, there=have)


def re_place(state: ClusterState, gang: Gang, pods: Sequence[Pod]) -> PlacementRequest:
    """What these of its pods, which have places, would want if they lost them."""
    staying = [pod for pod in gang.placed() if pod not in pods]
    ordered = sorted(pods, key=_order)
    return PlacementRequest(_groups(ordered), _required(state, gang), *_anchors(state, staying))


def _crew(
    state: ClusterState, gang: Gang, roles: Roles, pods: Sequence[Pod]
) -> tuple[list[Pod], RolePreferences | None]:
    """The pods role by role, and which of the roles want what; None: none of them anything. Pods of
    a task that are unlike are roles of their own, with the task's wishes."""
    parts: dict[tuple[str, PodSpec], list[Pod]] = {}
    for pod in pods:
        parts.setdefault((pod.seen.task, pod.spec), []).append(pod)
    rows = state.snapshot.columns.row
    there = [pod for pod in gang.placed() if pod.alive and pod.node in rows]
    for pod in there:
        parts.setdefault((pod.seen.task, pod.spec), [])
    places = {part: index for index, part in enumerate(parts)}
    tasks = [task for task, _ in parts]

    have = Counter((rows[pod.node], places[pod.seen.task, pod.spec]) for pod in there)
    crew = RolePreferences(
        tuple((spec, len(own)) for (_, spec), own in parts.items()),
        _among(tasks, roles.near),
        _among(tasks, roles.apart),
        tuple((row, role, count) for (row, role), count in sorted(have.items())),
    )
    ordered = [pod for own in parts.values() for pod in own]
    return ordered, crew if crew.near or crew.apart else None


def _group_by_group(
    state: ClusterState, gang: Gang, missing: int, default_placement: str
) -> tuple[list[list[Pod]], tuple[PlacementRequest, ...]]:
    division = gang.division()
    every = division.units()
    if missing:
        least = division.units_to_start(gang.subgroups, missing, gang.short_tasks())
        tried = [every, least] if len(least) < len(every) else [every]
    else:
        tried = [every, *([unit] for unit in every[:UNITS_TRIED])]
    anchors, anchor_gpus = _anchors(state, gang.placed())
    required = _required(state, gang)
    attempts, wants = [], []
    for units in tried:
        pods, parts = _parts(state, gang, units, default_placement)
        attempts.append(pods)
        crew = None
        if len(parts) == 1 and all(group is None for group, _ in units):
            crew, parts = parts[0].crew, ()
        wants.append(
            PlacementRequest(_groups(pods), required, anchors, anchor_gpus, parts=parts, crew=crew)
        )
    return attempts, tuple(wants)


def _parts(
    state: ClusterState, gang: Gang, units: Sequence[Unit], default_placement: str
) -> tuple[list[Pod], tuple[SubgroupRequest, ...]]:
    """The pods part by part, and what each part wants; equal parts come one after the other."""
    crew = _roles_inside(state, gang, [pod for _, pods in units for pod in pods], default_placement)
    together: dict[int, tuple[Subgroup | None, list[Pod]]] = {}
    for group, pods in units:
        together.setdefault(id(group), (group, []))[1].extend(pods)
    alike: dict[SubgroupRequest, list[list[Pod]]] = {}
    for group, pods in together.values():
        pods.sort(key=_order)
        if crew is not None:
            pods.sort(key=lambda pod: crew[0][_role(pod)])
        part = SubgroupRequest(_groups(pods), crew=crew and _of_part(*crew, pods))
        if group is not None:
            level = _level(state, group.policy.required, group.policy.tier)
            part = replace(part, required=level)
            anchors, gpus = _anchors(state, group.placed)
            part = replace(part, anchors=anchors, anchor_gpus=gpus)
        alike.setdefault(part, []).append(pods)
    ordered = [pod for kind in alike.values() for pods in kind for pod in pods]
    return ordered, tuple(replace(part, times=len(kind)) for part, kind in alike.items())


def _role(pod: Pod) -> tuple[str, PodSpec]:
    return pod.seen.task, pod.spec


def _roles_inside(
    state: ClusterState, gang: Gang, pods: Sequence[Pod], default_placement: str
) -> tuple[dict[tuple[str, PodSpec], int], RolePreferences] | None:
    """For a gang in groups: its roles, and what they want of each other wherever they are. None: nothing."""
    roles = gang.object.roles if gang.object is not None else None
    if roles is None and (gang.placement or default_placement) != SPREAD:
        return None
    rows = state.snapshot.columns.row
    there = [pod for pod in gang.placed() if pod.alive and pod.node in rows]
    places: dict[tuple[str, PodSpec], int] = {}
    for pod in (*pods, *there):
        places.setdefault(_role(pod), len(places))
    tasks = [task for task, _ in places]
    pairs = tuple(combinations_with_replacement(range(len(places)), 2))
    near, apart = (
        ((), pairs)
        if roles is None
        else (
            _among(tasks, roles.near),
            _among(tasks, roles.apart),
        )
    )
    have = Counter((rows[pod.node], places[_role(pod)]) for pod in there)
    crew = RolePreferences(
        tuple((spec, 0) for _, spec in places),
        near,
        apart,
        tuple((row, role, count) for (row, role), count in sorted(have.items())),
    )
    return places, crew


def _of_part(
    places: dict[tuple[str, PodSpec], int], crew: RolePreferences, pods: Sequence[Pod]
) -> RolePreferences:
    """The same with the part's pods in it."""
    counts = Counter(places[_role(pod)] for pod in pods)
    roles = tuple((spec, counts[place]) for place, (spec, _) in enumerate(crew.roles))
    return replace(crew, roles=roles)


def _among(tasks: Sequence[str], pairs: Pairs) -> tuple[tuple[int, int], ...]:
    """The pairs of roles whose tasks are among these pairs."""
    return tuple(
        (a, b)
        for a, b in combinations_with_replacement(range(len(tasks)), 2)
        if (min(tasks[a], tasks[b]), max(tasks[a], tasks[b])) in pairs
    )


def equivalence_key(state: ClusterState, gang: Gang, wants: tuple[PlacementRequest, ...]) -> int:
    """A number for what the gang wants and on what terms, while none of it has a place."""
    if gang.counts.placed:
        return 0
    pods = gang.waiting()
    terms = {(pod.seen.runs_for_s, pod.seen.preempts) for pod in pods}
    least = gang.object.min_resources if gang.object is not None else ()
    queue = gang.queue
    asked = (queue, gang.priority, frozenset(terms), gang.started, wants, least)
    return state.pending.equivalence(asked)


def _required(state: ClusterState, gang: Gang) -> str:
    """The widest level that the gang may cross."""
    tier = gang.object.required_tier if gang.object is not None else gang.counts.tier
    return _level(state, gang.required, tier)


def _preferred(state: ClusterState, gang: Gang) -> str:
    """The level of whose domains the gang wants to span the fewest."""
    tier = gang.object.preferred_tier if gang.object is not None else None
    return _level(state, gang.preferred, tier)


def _level(state: ClusterState, named: str, tier: int | None) -> str:
    """A level by its name or its tier, which counts from the narrowest."""
    if named or tier is None:
        return named
    return state.network.level_of_tier(tier, state.snapshot.columns.domains.levels)


def _anchors(state: ClusterState, placed: Sequence[Pod]) -> tuple[tuple[int, ...], int]:
    """The rows where these already are, and their GPUs there if it is only one."""
    if not placed:
        return (), 0
    rows = state.snapshot.columns.row
    there = [pod for pod in placed if pod.alive and pod.node in rows]
    anchors = tuple(sorted({rows[pod.node] for pod in there}))
    gpus = 0
    for pod in there if len(anchors) == 1 else ():
        gpus |= pod.gpus
    return anchors, gpus


def _groups(pods: Sequence[Pod]) -> tuple[tuple[PodSpec, int], ...]:
    """Kinds of pods with their numbers, by the first in rank order."""
    if len(pods) == 1:
        return ((pods[0].spec, 1),)
    counts: dict[PodSpec, int] = {}
    for spec, together in groupby(pods, key=_spec):
        counts[spec] = counts.get(spec, 0) + sum(1 for _ in together)
    return tuple(counts.items())


_spec = attrgetter("spec")
_order = attrgetter("seen.order")

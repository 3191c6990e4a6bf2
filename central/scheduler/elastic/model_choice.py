"""The GPU model on which an elastic gang starts, where its speeds say how fast it is on several: the one on which it
would be fastest for what its seats are worth to the gangs that are there.

A seat of a model is worth what one more would do for those gangs (goodput.price). So the gang that gains most of a fast
model gets it, and one that is nearly as fast elsewhere leaves it free. The choice is made when the gang may start, and
counts for PATIENCE_S: a gang that gets no seat there by then starts on any.

Design: docs/design/elastic-speeds.md
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

from central.model import wording
from central.model.facts import PodSpec
from central.model.jobspec import ElasticTask
from central.scheduler.elastic import goodput, needs, pools
from central.scheduler.elastic.elastic_gang import ElasticGang, model_of
from central.scheduler.elastic.pools import Pool
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement import PlacementRequest
from central.scheduler.placement.placement_attempts import required_level
from central.scheduler.placement.request import RolePreferences
from central.scheduler.preemption.preemption_request import PreemptionContext
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey

PATIENCE_S = 60.0
MODELS_MOST = 16  # different names of models on which the gang has the same speeds
# in one cycle, because each counts the seats of all models; further gangs start on any
CHOICES_MOST = 16

Wants = tuple[PlacementRequest, ...]


@dataclass(frozen=True, slots=True)
class _ChosenModel:
    models: tuple[str, ...]
    rows: frozenset[int]
    until: float


@dataclass(slots=True)
class _Candidate:
    """Nodes on which the gang has the same speeds."""

    task: ElasticTask  # with these speeds
    models: set[str]
    rows: set[int]


class ModelChoices:
    def __init__(self, headroom: float = 0.0) -> None:
        """headroom: share of each pool's capacity that surplus leaves free."""
        self._headroom = headroom
        self._gangs: Sequence[ElasticGang] = ()
        self._open: dict[GangKey, ElasticGang] = {}  # without a seat, and of several speeds
        self._chosen: dict[GangKey, _ChosenModel] = {}
        self._rows: dict[str, list[int]] = {}  # by model; empty: not looked up in this cycle
        self._choices = 0  # of this cycle
        self._full: tuple[int, set[object]] = (-1, set())  # epoch; kinds of gangs without a seat

    def look(self, gangs: Sequence[ElasticGang]) -> None:
        """Begins a cycle, and drops the choices of gangs that have a seat or are gone. gangs: all elastic ones."""
        self._gangs, self._rows, self._choices = gangs, {}, 0
        self._open = {
            gang.key: gang
            for gang in gangs
            if gang.task.speeds is not None and gang.task.speeds.by_model and not gang.placed
        }
        self._chosen = {key: one for key, one in self._chosen.items() if key in self._open}

    def concerns(self, gang: Gang) -> bool:
        """Returns whether it is an elastic gang without a seat that says its speeds on several models."""
        return gang.key in self._open

    def narrowed(self, context: PreemptionContext, gang: Gang, wants: Wants) -> Wants:
        """The requests of a gang that it concerns, with its members on the nodes of the chosen model alone. Pods of its
        other tasks go where they could. Nothing may be withheld in the snapshot."""
        elastic = self._open[gang.key]
        spec = _spec_of_members(elastic)
        if spec is None or not all(_has(want.groups, spec) for want in wants):
            return wants
        choice = self._chosen.get(gang.key) or self._choose(context, elastic, spec)
        if choice is None or context.state.now >= choice.until:
            return wants
        return tuple(_on(want, spec, choice.models) for want in wants)

    def refused(self, context: PreemptionContext, gang: Gang) -> None:
        """The gang found no place on the nodes of the chosen model. It is tried on any when its time is over."""
        context.state.pending.preemption_retry_at.add(self._chosen[gang.key].until)

    def give_up(self, gang: Gang) -> None:
        """The gang can never start there, though there are seats; on others it may."""
        self._chosen[gang.key] = replace(self._chosen[gang.key], until=-inf)

    def remark(self, gang: Gang, now: float) -> str:
        """Returns a reason's clause on the choice; empty if there is none."""
        choice = self._chosen.get(gang.key)
        if choice is None or now >= choice.until:
            return ""
        models = wording.some(choice.models)
        return f"for at most {PATIENCE_S:.0f} s tried only on {models}, which suits its speeds best"

    def _choose(
        self, context: PreemptionContext, elastic: ElasticGang, spec: PodSpec
    ) -> _ChosenModel | None:
        """Chooses a model for the gang. None: there is no choice, no seat anywhere, or CHOICES_MOST were made."""
        gang = elastic.gang
        kind = (spec, elastic.task, gang.queue, gang.namespace, gang.priority)
        if self._full[0] != context.state.pending.epoch:
            self._full = (context.state.pending.epoch, set())
        if spec.unsupported or kind in self._full[1] or self._choices >= CHOICES_MOST:
            return None
        self._rows = self._rows or _rows_by_model(context.state)
        found = _candidates(self._rows, elastic.task)
        if len(found) < 2:
            return None
        self._choices += 1
        slowest = max(goodput.curve(each.task).harms[0] for each in found)
        costs = [self._cost(context, elastic.gang, spec, each, slowest) for each in found]
        possible = [(cost, index) for index, cost in enumerate(costs) if cost is not None]
        if not possible:
            self._full[1].add(kind)
            return None
        best = found[min(possible)[1]]
        models = tuple(sorted(best.models))
        choice = _ChosenModel(models, frozenset(best.rows), context.state.now + PATIENCE_S)
        self._chosen[elastic.key] = choice
        return choice

    def _cost(
        self,
        context: PreemptionContext,
        gang: Gang,
        spec: PodSpec,
        candidate: _Candidate,
        slowest: float,
    ) -> float | None:
        """Returns the gang's harm there, in units of that at its least size where it is slowest, and what its seats are
        worth to others; None: there is no seat."""
        rows = frozenset(candidate.rows)
        pool = Pool(spec, list(self._there(context, gang, spec, rows)), rows)
        coming = [
            self._open[key]
            for key, choice in self._chosen.items()
            if key != gang.key and choice.rows & rows and context.state.now < choice.until
        ]
        newcomers = [gang.key, *(each.key for each in coming)]
        pools.count_seats(context, pool, self._headroom, newcomers)
        least = candidate.task.least
        seats = pool.seats - least - sum(each.task.least for each in coming)
        held = context.reservations.get(gang.key)
        is_freed = (
            held is not None and held.by_eviction and rows.issuperset(held.place.rows.tolist())
        )
        if seats < 0 or not (
            is_freed
            or pools.some_domain_has(context, pool, required_level(context.state, gang), least)
        ):
            return None
        own = goodput.curve(candidate.task)
        others = [goodput.curve(each.task) for each in (*pool.gangs, *coming)]
        price = goodput.price([*others, own], seats)
        sizes = zip(own.sizes, own.harms, strict=True)
        return min(harm / slowest + price * size for size, harm in sizes)

    def _there(
        self, context: PreemptionContext, gang: Gang, spec: PodSpec, rows: frozenset[int]
    ) -> Iterator[ElasticGang]:
        """Yields the gangs of this class that are on these nodes only and whose surplus, if any, the gang may take."""
        row = context.state.snapshot.columns.row
        for each in self._gangs:
            if each.started and each.spec == spec and not each.ending:
                inside = all(row[pod.node] in rows for pod in each.placed.values())
                if inside and (not each.spare or needs.may_take(context, gang, each)):
                    yield each


def _rows_by_model(state: ClusterState) -> dict[str, list[int]]:
    """Nodes with GPUs of several models are left out."""
    found: dict[str, list[int]] = {}
    for name, row in state.snapshot.columns.row.items():
        if model := model_of(state.nodes[name]):
            found.setdefault(model, []).append(row)
    return found


def _candidates(rows: Mapping[str, Sequence[int]], task: ElasticTask) -> list[_Candidate]:
    """Returns one candidate for all models with the same speeds, of which it has MODELS_MOST at most."""
    found: dict[ElasticTask, _Candidate] = {}
    for model in sorted(rows):
        there = task.on(frozenset((model,)))
        candidate = found.setdefault(there, _Candidate(there, set(), set()))
        if len(candidate.models) < MODELS_MOST:
            candidate.models.add(model)
            candidate.rows.update(rows[model])
    return list(found.values())


def _spec_of_members(elastic: ElasticGang) -> PodSpec | None:
    """Returns the class of the elastic task's pods; None: they are unlike, or equal to a pod of another task."""
    mine: set[PodSpec] = set()
    others: set[PodSpec] = set()
    for pod in elastic.gang.members.values():
        (others if elastic.number(pod) is None else mine).add(pod.spec)
    return next(iter(mine)) if len(mine) == 1 and mine.isdisjoint(others) else None


def _has(groups: PodCounts, spec: PodSpec) -> bool:
    return any(group == spec for group, _ in groups)


def _on(want: PlacementRequest, spec: PodSpec, models: tuple[str, ...]) -> PlacementRequest:
    narrowed = _narrowed(spec, models)
    if _has(want.groups, narrowed):
        return want  # other pods name this model themselves

    def on(groups: PodCounts) -> PodCounts:
        return tuple((narrowed if group == spec else group, count) for group, count in groups)

    def roles_on(roles: RolePreferences | None) -> RolePreferences | None:
        return None if roles is None else replace(roles, pods=on(roles.pods))

    subgroups = tuple(
        replace(each, groups=on(each.groups), roles=roles_on(each.roles)) for each in want.subgroups
    )
    return replace(
        want,
        groups=on(want.groups),
        subgroups=subgroups,
        roles=roles_on(want.roles),
        own_specs=((narrowed, spec),),
    )


@lru_cache(maxsize=1024)
def _narrowed(spec: PodSpec, models: tuple[str, ...]) -> PodSpec:
    """One object for all equal ones."""
    return replace(spec, gpu_models=models)

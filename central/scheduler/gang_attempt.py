"""One attempt of a pending gang: it is bound, else it preempts, or reserves capacity, or is refused; and with how much
work it is tried again if its search has reached the limit.

Design: docs/design/budgets.md
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from central.model import wording
from central.model.decisions import Bind, Decision
from central.model.pending_causes import RETRY
from central.scheduler import binding, containment, pending_cause
from central.scheduler.inventory.pods import BIND_FAILED, Pod
from central.scheduler.pass_claims import PREEMPTION_RETRY_S
from central.scheduler.placement import (
    PlacementRequest,
    explain,
    offered_nodes,
    placement_attempts,
    pod_kinds,
)
from central.scheduler.queues import claimable_quota, min_resources
from central.scheduler.queues.shortfall import Shortfall
from central.scheduler.reserved_capacity import ReservedCapacity
from central.scheduler.scheduler import GangRefusal, Scheduler
from central.scheduler.shared_refusals import Refusals, RefusedRequest, Verdicts
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state import readiness
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import LONG_FACTOR, MAX_FACTOR, UNDISTURBED_MOST, WorkLimitReached

LIMITED_S = PREEMPTION_RETRY_S  # until a gang whose search reached its limit is tried with more
LIMITED_MAX_S = 10.0  # ... in a long attempt
LONG_S = 1.5  # ... for each first limit of work that it took, so that long attempts take about a tenth of the time


def schedule(
    scheduler: Scheduler,
    gang: Gang,
    reserved: ReservedCapacity,
    decisions: list[Decision],
    *,
    shares: bool,
    verdicts: Verdicts,
) -> None:
    """Binds as many of the gang's pods as fit, but while others are left in the round its minimum first, and
    of a scarce surplus one unit; else makes or keeps capacity for its minimum. Appends each decision right after
    the state has it: what fails later must not lose it. shares: whether others may be left. verdicts: what the round
    remembers of refusals."""
    missing = gang.missing()
    _, why = readiness.not_ready(gang, missing, scheduler.quarantine)
    if not why and (failed := scheduler.elastic.unready.held(gang, scheduler.state.now)):
        why = failed.reason
    gang.attempt.reason = why
    readiness.end_eviction(gang)
    scheduler.refused.pop(gang.key)
    if why:
        reserved.release(gang)
        return
    _GangTurn(scheduler, gang, reserved, decisions, shares, verdicts, missing).take()


class _GangTurn(NamedTuple):
    """The attempt for a gang that is ready. missing: how many members it lacks to its minimum."""

    scheduler: Scheduler
    gang: Gang
    reserved: ReservedCapacity
    decisions: list[Decision]
    shares: bool
    verdicts: Verdicts
    missing: int

    def take(self) -> None:
        scheduler, gang = self.scheduler, self.gang
        if self._reads_free_capacity():
            self.reserved.show_free()
        attempts, wants = placement_attempts.attempts(
            scheduler.state, gang, self.missing, scheduler.policy.placement
        )
        refusals = [pending_cause.start_refusal(scheduler, gang, want.groups) for want in wants]
        admitted = [index for index, (why, _) in enumerate(refusals) if not why]
        if not admitted:  # not even the smallest attempt
            self._refuse_by_quota(wants, *refusals[-1])
            return
        attempts = [attempts[index] for index in admitted]
        allowed = tuple(wants[index] for index in admitted)
        wants = _on_chosen_model(scheduler, gang, self.reserved, allowed)
        first, most = self._share(attempts) if not refusals[0][0] else (0, None)
        refused = self._bind(attempts[first:], wants[first:], most)
        if refused is None or is_undecided(gang):
            return
        if wants != allowed:
            models = scheduler.elastic.models
            if wording.NEVER in gang.attempt.reason:
                models.give_up(gang)
                self.take()
                return
            models.refused(scheduler.preemption, gang)
        if offered_nodes.waits(gang.attempt.reason):
            self._wait_for_offers()
        else:
            self._refuse(wants, refused[scheduler.state.pending.epoch, wants[first:]])

    def _reads_free_capacity(self) -> bool:
        """Returns whether what is free decides what is tried, or whether quota admits it."""
        gang, resources = self.gang, self.scheduler.min_resources
        has_choice = self.missing != len(gang.counts.waiting) or bool(gang.subgroups)
        return has_choice or bool(resources.by_gang) or bool(min_resources.declared(gang))

    def _share(self, attempts: Sequence[list[Pod]]) -> tuple[int, Sequence[Pod] | None]:
        """The attempt to begin with and, of its pods, those that may be bound; None: all. While others are left in the
        round, the minimum goes first, and of a scarce surplus one unit."""
        if len(attempts) == 1 or not self.shares:
            return 0, None
        columns = self.scheduler.state.pending.columns
        left = columns.of(columns.due())
        if not left:
            return 0, None
        if self.missing:
            return 0, attempts[1]
        return int(placement_attempts.scarce(self.scheduler.state, [self.gang, *left])), None

    def _bind(
        self,
        attempts: Sequence[list[Pod]],
        wants: tuple[PlacementRequest, ...],
        most: Sequence[Pod] | None,
    ) -> Refusals | None:
        """Binds the first attempt that fits. Returns what was refused with the least withheld; None if pods were
        bound."""
        refused: Refusals = {}
        for bound_by in self.reserved.views_for(self.gang):
            refused = self.verdicts.of(bound_by, wants, self.scheduler.state.pending.epoch)
            binds = _place(
                self.scheduler,
                self.gang,
                attempts,
                wants,
                refused,
                reserved=self.reserved,
                most=most,
            )
            if binds:
                self.decisions.extend(binds)
                self.reserved.on_bound(self.gang)
                return None
        return refused

    def _refuse_by_quota(self, wants: tuple[PlacementRequest, ...], why: str, cause: str) -> None:
        scheduler, gang, smallest = self.scheduler, self.gang, wants[-1]
        gang.attempt.equivalence = _equivalence(scheduler, gang, wants)
        scheduler.state.pending.refuse(gang, why)
        refusal = GangRefusal(
            gang, smallest, why, missing=self.missing, over_quota=True, cause=cause
        )
        scheduler.refused.give(gang, refusal)
        claimable, growth = partial(_claimable, scheduler, gang, smallest), not self.missing
        self.decisions.extend(self.reserved.on_over_quota(gang, smallest, claimable, growth=growth))
        self.reserved.annotate(gang)

    def _wait_for_offers(self) -> None:
        """Leaves the gang to a later attempt, in seconds: it evicts nothing and keeps its reservation."""
        self.gang.attempt.equivalence = 0
        state = self.scheduler.state
        state.pending.preemption_retry_at.add(state.now + PREEMPTION_RETRY_S)

    def _refuse(self, wants: tuple[PlacementRequest, ...], refused: RefusedRequest) -> None:
        scheduler, gang, reserved = self.scheduler, self.gang, self.reserved
        gang.attempt.equivalence = _equivalence(scheduler, gang, wants)
        if not scheduler.elastic.models.concerns(gang):
            gang.attempt.least_gpus, gang.attempt.least_pods = placement_attempts.least(wants)
        why, withheld = gang.attempt.reason, reserved.withheld()
        refusal = GangRefusal(gang, wants[-1], why, *withheld, missing=self.missing)
        refusal.counted, refusal.cause = refused.counted, refused.cause
        scheduler.refused.give(gang, refusal)
        on_refused = reserved.on_refused if self.missing else reserved.on_growth_refused
        self.decisions.extend(on_refused(gang, wants[-1]))
        reserved.annotate(gang)


def _on_chosen_model(
    scheduler: Scheduler,
    gang: Gang,
    reserved: ReservedCapacity,
    wants: tuple[PlacementRequest, ...],
) -> tuple[PlacementRequest, ...]:
    """The requests on the GPU model that is chosen for the gang, if it has a choice."""
    models = scheduler.elastic.models
    if not models.concerns(gang):
        return wants
    reserved.close()  # seats are counted without what the gang before could not use
    return models.narrowed(scheduler.preemption, gang, wants)


def _claimable(
    scheduler: Scheduler, gang: Gang, want: PlacementRequest
) -> list[tuple[Shortfall, ...]] | None:
    """Returns claimable_quota.shortfalls() if quota is all that refuses the gang; else None."""
    min_resources = scheduler.min_resources
    if min_resources.refusal(scheduler.state, gang, want.groups):
        return None
    return claimable_quota.shortfalls(scheduler.queues, min_resources, gang, want.groups)


def _equivalence(scheduler: Scheduler, gang: Gang, wants: tuple[PlacementRequest, ...]) -> int:
    tenant = scheduler.preemption.tenant(gang)
    if scheduler.preemption.time_sharing.shares(gang):
        tenant = (*tenant, gang.key)  # its reason says when its turn comes
    return placement_attempts.equivalence_key(scheduler.state, gang, wants, tenant)


def _place(
    scheduler: Scheduler,
    gang: Gang,
    attempts: Sequence[list[Pod]],
    wants: tuple[PlacementRequest, ...],
    refused: Refusals,
    *,
    reserved: ReservedCapacity,
    most: Sequence[Pod] | None,
) -> list[Bind]:
    """Binds the first attempt that fits. most: only these of its pods, where they would run beside the
    others."""
    state, pending = scheduler.state, scheduler.state.pending
    request = (pending.epoch, wants)
    if refused and request in refused:
        pending.refuse(gang, refused[request].reason)
        return []
    draft, cause = Draft(state.snapshot), RETRY
    pairs = zip(wants, attempts, strict=True)
    for want, attempt in dict(pairs).items() if len(wants) > 1 else pairs:
        refusal = _refusal(scheduler, draft, want, is_last=want is wants[-1] or want == wants[-1])
        if refusal is not None:
            if refusal.why:
                gang.attempt.reason = refusal.why
                cause = explain.cause(state.snapshot, want, refusal)
            continue
        gang.attempt.reason, gang.attempt.refused_at = "", -1
        pods = attempt
        if most is not None and len(most) < len(attempt):
            pods = binding.reduce(draft, attempt, most, want.own_specs)
        try:
            return binding.binds(state, gang, pods, draft.keep(), want.own_specs)
        except Exception:
            _take_back(pods)
            raise
    _raise_filter_failure(state.snapshot, wants[-1])
    if state.snapshot.meter.was_short:  # no answer, so nothing is certain
        limit = explain.LARGEST_LIMIT if state.snapshot.meter.is_largest else explain.WORK_LIMIT
        gang.attempt.reason = f"{pod_kinds.describe(wants[-1].groups)}; {limit}"
    pending.refuse(gang, gang.attempt.reason)
    refused[request] = RefusedRequest(gang.attempt.reason, reserved.counted(), cause)
    return []


def _refusal(
    scheduler: Scheduler, draft: Draft, want: PlacementRequest, *, is_last: bool
) -> DoesNotFit | None:
    """Fills the draft if the request fits: None. The last one is searched even with no work left, and says why it does
    not."""
    state, meter = scheduler.state, scheduler.state.snapshot.meter
    if meter.was_short and not is_last:
        return DoesNotFit("")
    if meter.is_spent:  # by larger attempts
        meter.extend()
    try:
        with containment.ContainedSearch(state.snapshot):
            offered_nodes.fit(draft, want, state.node_sets.not_offered)
    except DoesNotFit as no:
        return no if is_last else DoesNotFit("")
    except WorkLimitReached:
        draft.undo()
        return DoesNotFit("")
    except containment.SearchFailed:
        draft.undo()
        raise
    return None


def _raise_filter_failure(snapshot: Snapshot, want: PlacementRequest) -> None:
    for spec, _ in want.groups:
        if (failure := snapshot.view(spec).filter_failure) is not None:
            raise containment.SearchFailed from failure


def _take_back(pods: Sequence[Pod]) -> None:
    """Makes the pods pending again: their binding was not decided after all. The state is built again with them
    pending."""
    for pod in pods:
        pod.advance(BIND_FAILED)
        pod.node, pod.gpus = "", 0


def set_work_limit(scheduler: Scheduler, gang: Gang) -> None:
    """Sets the work limit of the gang's next attempt. If a search of the gang has reached its limit, the gang is tried
    again with more work, though no capacity is freed; with as much if others ended it, but then they let it work for
    twice as long."""
    attempt, meter = gang.attempt, scheduler.state.snapshot.meter
    was_long, wait_s = attempt.work_factor > MAX_FACTOR, LIMITED_S
    if not meter.was_short and not is_undecided(gang):
        attempt.work_factor = 1
        return
    if meter.was_interrupted:
        attempt.undisturbed = min(2 * meter.used, UNDISTURBED_MOST)
    elif not was_long:
        doubled = 2 * attempt.work_factor
        attempt.work_factor = doubled if doubled <= MAX_FACTOR else LONG_FACTOR
    if was_long:
        wait_s = max(LIMITED_MAX_S, LONG_S * meter.used / meter.first_limit)
    scheduler.state.pending.try_later(gang, scheduler.state.now + wait_s)


def is_undecided(gang: Gang) -> bool:
    return gang.attempt.reason.endswith((explain.WORK_LIMIT, explain.LARGEST_LIMIT))

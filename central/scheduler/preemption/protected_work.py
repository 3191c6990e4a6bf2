"""Rules that protect running pods from eviction for a pending gang, and how many pods each protects. For its reason.

A pod counts if it holds what the gang asks for, on a node that the gang may use: where each pod of the gang asks for
GPUs, shares or MIG slices, a pod that has some, else any pod. The table of victims has these pods as arrays, so only
the rules of less urgent gangs are looked up one by one.

Design: docs/design/evictions.md
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from central.model import wording
from central.model.arrays import Bools
from central.model.defaults import ACROSS_NONE
from central.model.timestamps import stamp
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import evictable
from central.scheduler.preemption.disruption_budgets import disruptions_left
from central.scheduler.preemption.preemption_request import PreemptionContext
from central.scheduler.state.gangs import Gang
from protos import slicing

GANGS_MOST = 1_000  # less urgent ones whose rules are looked up for one sentence
OTHER_NAMESPACES, BUDGETS, OTHER_SCHEDULERS = "namespaces", "budgets", "schedulers"
_SAID = (  # in the order in which they are said
    (OTHER_NAMESPACES, "is in another namespace", "are in other namespaces"),
    (evictable.NOT_PREEMPTABLE, "is not preemptable", "are not preemptable"),
    (
        evictable.TOO_YOUNG,
        "has not reached its minimum run time",
        "have not reached their minimum run time",
    ),
    (BUDGETS, "is covered by a disruption budget", "are covered by disruption budgets"),
    (OTHER_SCHEDULERS, "is another scheduler's", "are other schedulers'"),
)
ABOUT = {OTHER_NAMESPACES: " (--preempt-across none)"}


@dataclass(slots=True)
class Protected:
    """Pods by rule, and how many no rule protects. complete: all gangs were looked up. first_end: when the first of
    them reaches its minimum run time."""

    by_rule: Counter[str] = field(default_factory=Counter)
    less_urgent: int = 0  # pods
    not_less_urgent: int = 0
    complete: bool = True
    first_end: float = inf

    @property
    def too_few(self) -> int:
        """The less urgent ones that no rule is known to protect."""
        return self.less_urgent - self.by_rule.total() + self.by_rule[OTHER_SCHEDULERS]

    def clauses(self) -> list[str]:
        """Returns one clause for each rule that protects pods, for example "3 pods are not preemptable"."""
        about = ABOUT
        if self.first_end < inf:
            first = "the first at" if self.by_rule[evictable.TOO_YOUNG] > 1 else "until"
            at = stamp(self.first_end)[:16].replace("T", " ")
            about = {**ABOUT, evictable.TOO_YOUNG: f" ({first} {at} UTC)"}
        return [
            f"{wording.counted(count, 'pod')} {one if count == 1 else many}{about.get(rule, '')}"
            for rule, one, many in _SAID
            if (count := self.by_rule[rule])
        ]


def count(
    context: PreemptionContext, gang: Gang, request: PlacementRequest, queues: frozenset[str]
) -> Protected:
    """queues: only gangs of these are counted, whatever their priority where it is another queue than the gang's;
    empty: all that run."""
    table, counts = context.candidates.table, context.counts_in_reasons
    if counts.reads:
        table.refresh()
    elif not table.built:
        return Protected()
    counts.begin((context.state.now, table.reads, context.state.pending.epoch))
    rows, own = _rows(context, request), table.slot_of(gang)
    every = all(slicing.requests_devices(spec.requests) for spec, _ in request.groups)
    key = (rows.tobytes(), every, gang.namespace, gang.priority, gang.queue, queues, own)
    found: Protected | None = counts.known.get(key)
    if found is None:
        found = counts.known[key] = _count(context, gang, rows, queues, devices=every)
    return found


def _rows(context: PreemptionContext, request: PlacementRequest) -> Bools:
    snapshot = context.state.snapshot
    rows = np.zeros(len(snapshot.columns.names), dtype=np.bool_)
    for spec, _ in request.groups:
        rows[snapshot.view(spec).refresh().passed_rows()] = True
    return rows


def _count(
    context: PreemptionContext, gang: Gang, rows: Bools, queues: frozenset[str], *, devices: bool
) -> Protected:
    table, found = context.candidates.table, Protected()
    classes = [not devices or slicing.requests_devices(spec.requests) for spec in table.classes]
    by_slot = table.pods_by_slot(rows, np.array(classes, dtype=np.bool_))
    if (own := table.slot_of(gang)) >= 0:
        by_slot[own] = 0
    inside = table.may_evict(lambda other: not queues or other.queue in queues, by_group=True)
    allowed = table.may_evict(lambda other: _may_go(gang, other, queues), by_group=True)
    by_slot[~inside] = 0
    found.not_less_urgent = int(by_slot[~allowed].sum())
    found.less_urgent = int(by_slot[allowed].sum())
    slots = np.flatnonzero(by_slot * allowed).tolist()
    found.complete = len(slots) <= GANGS_MOST
    if found.complete:
        rules = _ProtectionRules(context, gang, rows, devices=devices)
        for slot in slots:
            if (other := table.gangs[slot]) is not None:
                found.by_rule.update(
                    rules.of(other, int(by_slot[slot]), int(table.by_slot.surplus[slot]))
                )
        found.first_end = rules.first_end
    if devices and not queues:
        row = context.state.snapshot.columns.row
        found.by_rule[OTHER_SCHEDULERS] = sum(
            bool(rows[row[pod.node]]) for pod in context.state.others_with_devices()
        )
    return found


class _ProtectionRules:
    """The rules that protect less urgent gangs."""

    def __init__(
        self, context: PreemptionContext, claimant: Gang, rows: Bools, *, devices: bool
    ) -> None:
        self._context, self._claimant, self._rows, self._devices = context, claimant, rows, devices
        self._min_runtimes = evictable.MinRuntimes(context)
        self.first_end = inf
        self._left = disruptions_left(context.budgets, context.state.gangs.values())

    def of(self, other: Gang, pods: int, surplus: int) -> Counter[str]:
        """pods: of the gang that count. surplus: of its members."""
        context, claimant = self._context, self._claimant
        if (
            context.across == ACROSS_NONE
            and other.namespace != claimant.namespace
            and other.queue == claimant.queue
        ):
            return Counter({OTHER_NAMESPACES: pods})
        found: Counter[str] = Counter()
        # To other queues marks and budgets do not matter.
        own = not context.queues.enabled or other.queue == claimant.queue
        why = self._min_runtimes.why_whole(other, context.state.now, marks_hold=own)
        if why == evictable.NOT_PREEMPTABLE and surplus:
            found[why] = sum(not evictable.may_leave(other, pod) for pod in self._counted(other))
        elif why:
            found[why] = max(0, pods - surplus)
        if found[evictable.TOO_YOUNG]:
            end = self._min_runtimes.end(other, context.state.now, marks_hold=own)
            self.first_end = min(self.first_end, end)
        if own and found.total() < pods and context.budgets.seen:
            found[BUDGETS] = min(self._in_budgets(other, surplus), pods - found.total())
        return found

    def _in_budgets(self, other: Gang, surplus: int) -> int:
        """Returns how many of its pods budgets protect now: each by itself if it has surplus, else all or none."""
        counted = self._counted(other)
        if surplus:
            return sum(self._are_kept([pod]) for pod in counted)
        # others are spent already
        staying = [pod for pod in other.counts.placed if not pod.leaving]
        return len(counted) if self._are_kept(staying) else 0

    def _are_kept(self, pods: Sequence[Pod]) -> bool:
        budgets = self._context.budgets
        uses = budgets.disruptions(pods)
        return budgets.never_evictable(pods) or any(
            n > self._left[name] for name, n in uses.items()
        )

    def _counted(self, other: Gang) -> list[Pod]:
        row = self._context.state.snapshot.columns.row
        return [
            pod
            for pod in other.counts.placed
            if pod.charged_spec is not None
            and not pod.leaving
            and self._rows[row[pod.node]]
            and (not self._devices or slicing.requests_devices(pod.spec.requests))
        ]


def _may_go(gang: Gang, other: Gang, queues: frozenset[str]) -> bool:
    """Returns whether the other gang may be evicted unless a rule protects it: by priority or, if queues are given, as
    a gang of another one, by what that queue has too much of."""
    return other.priority < gang.priority or bool(queues and other.queue != gang.queue)

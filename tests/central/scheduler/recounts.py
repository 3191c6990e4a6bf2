"""What parts of the scheduler count and keep up to date, counted anew from what they hold, for tests."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import nan
from typing import Any

import numpy as np

from central.model import selectors
from central.model.arrays import Ints
from central.model.device_claims import DeviceId, DeviceNeeds
from central.model.facts import PodSpec
from central.model.volumes import Volumes
from central.scheduler.device_claims.device_allocation import DeviceAllocation
from central.scheduler.device_claims.device_shares import Uses, left_of
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.preemption import past_runs
from central.scheduler.preemption.run_histories import RunHistories, RunHistory
from central.scheduler.preemption.time_sharing import TimeSharing
from central.scheduler.queues import order
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.scoring.node_states import NodeStates
from central.scheduler.scoring.state_costs import NOT_COMPUTED, StateCosts
from central.scheduler.scoring.workload_mix import WorkloadMix
from central.scheduler.state.attempt import SURPLUS_BITS
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.state.owner_gangs import OwnerGangs
from central.scheduler.state.pending_columns import PendingColumns
from central.scheduler.state.pending_gangs import PendingGangs
from central.scheduler.state.refusals import Refusals
from central.scheduler.volumes.assignment import VolumeAssignment
from central.scheduler.volumes.free_volumes import FreeVolumes
from central.scheduler.volumes.reach import VolumeReach


def check_free_volumes(free: FreeVolumes) -> None:
    """Asserts that all counts equal a recount."""
    here = {n: v for n, v in free.listed.items() if n not in free.reserved}
    kept = {name: v for volumes in free._available.values() for name, v in volumes.items()}
    assert kept == here, f"available volumes: {sorted(kept)}, should be {sorted(here)}"
    for storage_class, counts in free._counts.items():
        for any_of, found in counts.items():
            fresh = np.zeros(free.rows, dtype=np.int64)
            for volume in here.values():
                if volume.storage_class == storage_class and any(w.takes(volume) for w in any_of):
                    fresh[list(free.reach.rows[volume.places])] += 1
            assert (found == fresh).all(), f"count of {storage_class} volumes is out of date"
    check_reach(free.reach)


def check_reach(reach: VolumeReach) -> None:
    """Asserts that the rows equal a scan of all nodes."""
    for places, rows in reach.rows.items():
        fresh = {row for row, node in reach._nodes.items() if selectors.inside(places, node)}
        assert rows == fresh, f"{places}: rows {rows}, should be {fresh}"


def pods_assigned(volumes: VolumeAssignment) -> dict[tuple[int, Volumes], int]:
    """Counts the pods that have assigned volumes which are not confirmed, by row and volumes."""
    return {key: len(pods) for key, pods in volumes._assigned.items()}


def overused(devices: DeviceAllocation) -> list[str]:
    """Returns the devices of which allocated claims and drafts hold more than there is."""
    every = Counter(use for claim in devices._held_by for use in devices._allocated[claim])
    held: dict[DeviceId, Uses] = {}
    for (device, consumed), times in (every + devices.taken()).items():
        held.setdefault(device, Counter())[consumed] = times
    found = []
    for device, uses in held.items():
        pooled = devices.pools.devices.get(device)
        shares = uses.total() - uses[None]
        if uses[None] + bool(shares) > 1 or (
            pooled is not None and shares and min(left_of(pooled.device, uses), default=0) < 0
        ):
            found.append(str(device))
    return found


def pods_taken(devices: DeviceAllocation) -> dict[tuple[int, DeviceNeeds], int]:
    """Counts the pods that drafts have taken unconfirmed devices for, by row and needs."""
    return {
        (row, needs): len(pods)
        for row, on_row in devices._on_row.items()
        for needs, pods in on_row.pods.items()
    }


def nonzero(kept: MatchingPodCounts) -> dict[object, Counter[int]]:
    """Returns every count that is not zero, by what is counted and by row."""
    counted: list[tuple[object, Ints]] = [*kept._matching.items(), *kept._ports.items()]
    counted += [*kept._claims.items(), *kept._attached.items()]
    for number, by_key in kept._avoiding.items():
        counted += [((number, key), counts) for key, counts in by_key.items()]
    rows = {
        what: Counter({int(row): int(counts[row]) for row in np.flatnonzero(counts)})
        for what, counts in counted
    }
    return {what: found for what, found in rows.items() if found}


def expected(
    kept: MatchingPodCounts, there: Iterable[tuple[int, PodSpec]]
) -> dict[object, Counter[int]]:
    """Returns what nonzero() should be. there: the row and class of each placed pod."""
    found: dict[object, Counter[int]] = {}
    attached: set[tuple[int, str]] = set()
    for row, spec in there:
        whats: list[object] = [number for number in spec.matched if number in kept._matching]
        if spec.rules is not None:
            whats += spec.rules.ports
            whats += [(kept.ids[a.peers], a.key) for a in spec.rules.apart]
        if spec.volumes is not None:
            whats += spec.volumes.exclusive
            for driver, count in spec.volumes.attach:
                whats += [driver] * count
            for driver, claim in spec.volumes.common:
                if (row, claim) not in attached:
                    attached.add((row, claim))
                    whats.append(driver)
        for what in whats:
            found.setdefault(what, Counter())[row] += 1
    return found


def costs(mix: WorkloadMix) -> Iterator[tuple[Ints, Ints]]:
    """Yields by row the cached costs of all pods, and the same computed again."""
    if mix._filtered_at == mix._pod_counts.nodes_version and len(mix._allowed):
        again = dict[int, NodeStates]()
        base = mix._costs_in(again, (), None)
        for pods, cached in list(mix._costs.items()):
            rows = known_rows(cached)
            yield cached.at(rows), mix._costs_in(again, pods, base if pods else None).at(rows)


def known_rows(costs: StateCosts) -> Ints:
    """The rows whose costs are kept."""
    numbers = costs._numbers()
    return np.flatnonzero(costs._table[numbers] != NOT_COMPUTED)


def check_owners(owners: OwnerGangs) -> None:
    filed = {uid for siblings in owners._by_owner.values() for uid in siblings}
    assert filed == owners.pods.keys(), "pods and their controllers disagree"
    for uid, fact in owners.pods.items():
        assert uid in owners._by_owner[fact.owner]
    assert owners.held.keys() <= owners.pods.keys(), "a deleted pod is held"
    assert owners.gone <= owners._by_owner.keys() & owners.seen.keys(), (
        "a deleted controller without pods is kept"
    )


def check_leaving(pending: PendingGangs, gangs: Iterable[Gang]) -> None:
    """Asserts that every gang with a terminating pod is known."""
    known = pending._may_leave
    missed = [each.name for each in gangs if each not in known and each.some_member_leaves()]
    assert not missed, f"pods of {missed} leave, which was not noted"


def check_time_sharing(
    known: TimeSharing,
    queues: Queues,
    gangs: Mapping[GangKey, Gang],
    changed: Mapping[GangKey, Gang],
) -> None:
    """Asserts that what is known of gangs is so."""
    histories = known.histories
    for key, history in histories.by_key.items():
        if key in changed or key in histories.gone_at:
            continue
        gang = gangs.get(key)
        assert gang is history.gang, f"{key}: time sharing knows another gang"
        runs = past_runs.began(gang.counts.placed, 0.0) is not None
        assert runs == (history.since is not None), f"{key}: runs or does not"
        assert history.attained_s >= 0, f"{key}: {history}"
        assert history.terms == known._terms(history, known.quantum_s(queues, gang)), history
        _check_columns(histories, history)
        stands = gang.attempt.rank, gang.attempt.run_time_s
        should = order.rank(gang), order.backfill_time_s(gang)
        assert runs or stands == should, f"{key}: {stands} instead of {should}"
    _check_turns(histories)
    for name, ahead in known._ahead.items():
        fresh = known._find_ahead(name)
        assert ahead == fresh, f"queue {name}, who is ahead: {ahead}; found {fresh}"
    for key, gang in gangs.items():
        if key not in changed and gang.members and known.quantum_s(queues, gang) is not None:
            assert key in histories.by_key, f"{key} shares time and is not known"


def _check_turns(kept: RunHistories) -> None:
    rows = [each.row for each in kept.by_key.values() if each.row not in kept._stale]
    for column, anew in zip(kept._lateness, kept._lateness_of(slice(None)), strict=True):
        assert np.array_equal(column[rows], anew[rows]), f"at {kept.now}"
    if kept._places is not None:
        rows = [each.row for each in kept.by_key.values()]
        places, fresh = kept._places[rows], kept._find_places()[rows]
        assert np.array_equal(np.argsort(places), np.argsort(fresh)), "order of turns"


def _check_columns(kept: RunHistories, history: RunHistory) -> None:
    row, terms = history.row, history.terms
    assert terms is not None, history
    assert kept._by_row[row] is history, history
    found = [column[row] for column in (kept._created, kept._attained_s)]
    assert found == [terms.created, terms.attained_s], history
    for column, value in (
        (kept._since, terms.since),
        (kept._quantum_s, terms.quantum_s),
        (kept._run_time_s, terms.run_time_s),
        (kept.turn, history.gang.preemption.turn),
    ):
        should = nan if value is None else value
        assert np.array_equal(column[row], should, equal_nan=True), history
    assert kept._waits[row] == terms.waits, history
    assert kept._queue[row] == kept._queues.number(terms.queue), history
    assert kept.contention[row] >= 1, history


def check_pending(columns: PendingColumns, waiting: Iterable[Gang]) -> None:
    """Asserts that the columns say what the waiting gangs say."""
    gangs = list(waiting)
    assert {*np.flatnonzero(columns.waiting).tolist()} == {gang.attempt.row for gang in gangs}
    for gang in gangs:
        row, rank = gang.attempt.row, gang.attempt.rank
        assert columns.gangs[row] is gang, f"{gang.name} is in no row"
        tier = (rank[0] << SURPLUS_BITS) + rank[1]
        assert columns.tier[row] == tier, f"{gang.name}: another rank"
        queue = columns.queue_names[columns.queue[row]] if columns.queue[row] >= 0 else None
        charged = gang.account.queue if gang.account is not None else None
        assert queue == charged, f"{gang.name}: {queue} is charged instead of {charged}"
    in_order, moved = columns._in_order.tolist(), columns._moved
    stay = [row for row in in_order if columns.waiting[row] and row not in moved]
    assert stay == sorted(stay, key=columns._rank), "the gangs are not in order"
    others = {row for row in moved if columns.waiting[row]}
    assert {*stay} | others == {gang.attempt.row for gang in gangs}, "the order lacks gangs"


def check_refusals(refusals: Refusals[Any]) -> None:
    for key, row in refusals._rows.items():
        gang = refusals._columns.at(row)
        assert gang.key == key, f"{gang.name} is listed as {key}"
        has = refusals._columns.refusal[row] is not None
        assert has, f"{gang.name} is listed without a refusal"
    listed = refusals._columns.listed.nonzero()[0].tolist()
    assert {*refusals._rows.values()} == {*listed}

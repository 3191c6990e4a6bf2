"""Invariants of the scheduler after every cycle, recomputed from scratch. Tests check them. The live scheduler does
not: a check costs more than a cycle.

    python -m tests.central.scheduler.invariants JOURNAL     checks them in a replay, such as that of a bug report
"""

import sys
from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import cast

import numpy as np

from central.controllers.composite import BatchControllers
from central.model.volumes import Volumes
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.nic_limits import NicCapacity
from central.scheduler.inventory.pods import ASSUMED, BOUND
from central.scheduler.preemption.victim_table import VictimTable, victim_group
from central.scheduler.quarantine import ACCOUNT, SetAsideKey
from central.scheduler.queues import order
from central.scheduler.queues.min_resources import outstanding
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.usage_by_priority import UsageByPriority
from central.scheduler.reservation.competition import compete
from central.scheduler.scheduler import Scheduler
from central.scheduler.scoring.preferences import PreferenceScore
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.status.gang_status import phase
from central.server import replay
from protos.gpu_sharing import RANKS, WHOLE
from protos.names import DOMAINS, GPU
from protos.topology import RdmaLimit, mask_of
from tests.central.controllers import controller_invariants
from tests.central.scheduler import recounts

NONE = NicCapacity({}, RdmaLimit())
ALL = slice(None)


def check_invariants(scheduler: Scheduler, classes: slice = ALL) -> None:
    """Raises AssertionError with the invariant that does not hold.

    `classes` selects the pod classes whose cached capacities are recounted, most of a check's cost.
    A wrong count stays wrong until its row changes, so that a few classes each cycle find it too.
    """
    state = scheduler.state
    for node in state.nodes.values():
        _free_capacity(state, node)
        _gpus(state, node)
    _topology_levels(state)
    _unhealthy_nodes(state)
    _nodes_not_offered(state)
    _indices(state)
    _owners(state)
    _reservations(scheduler)
    _candidates(scheduler)
    _time_sharing(scheduler)
    _pod_classes(state)
    _volumes(state)
    _device_claims(state)
    _queues(scheduler)
    _min_resources(scheduler)
    _cached_capacities(state, classes)
    if isinstance(scheduler.controllers, BatchControllers):
        controller_invariants.check(scheduler.controllers, state)
    recounts.check_pending(state.pending.columns, state.pending.waiting.values())
    _leaving_pods(state)
    recounts.check_refusals(scheduler.refused)


def check_journal(path: str) -> None:
    """Replays the journal, and checks the invariants after each of its cycles."""
    replay.replay(path, after_cycle=lambda _, scheduler: check_invariants(scheduler))


def _leaving_pods(state: ClusterState) -> None:
    recounts.check_leaving(state.pending, state.gangs.values())
    leaves = any(pod.node and pod.leaving for pod in state.pods.values())
    assert state.some_pod_leaves() == leaves, f"some pod leaves: {not leaves}, should be {leaves}"


def _time_sharing(scheduler: Scheduler) -> None:
    state = scheduler.state
    aside = {key.identity for key in scheduler.quarantine.set_asides if key.kind == ACCOUNT}
    unread = {key: gang for key, gang in state.gangs.items() if key in aside}
    known, changed = scheduler.preemption.time_sharing, {**state.pending.changed_gangs, **unread}
    recounts.check_time_sharing(known, scheduler.queues, state.gangs, changed)


def _min_resources(scheduler: Scheduler) -> None:
    """What admitted gangs have reserved is their minResources less what their pods use."""
    kept = {key: sums for key, (_, sums) in scheduler.min_resources.by_gang.items()}
    owes = {
        gang.key: sums
        for gang in scheduler.state.gangs.values()
        if gang.key not in scheduler.state.pending.changed_gangs and (sums := outstanding(gang))
    }
    set_aside = [key.identity for key in scheduler.quarantine.set_asides if key.kind == ACCOUNT]
    for key in (*scheduler.state.pending.changed_gangs, *set_aside):
        kept.pop(cast("GangKey", key), None)
        owes.pop(cast("GangKey", key), None)
    assert kept == owes, f"reserved for minResources: {kept}, should be {owes}"


def _topology_levels(state: ClusterState) -> None:
    """The topology levels that pods get as annotations match their node's labels."""
    snapshot = state.snapshot
    for name, row in snapshot.columns.row.items():
        node, given = snapshot.columns.nodes[row], dict(snapshot.columns.domains.annotations(row))
        labels = snapshot._labels(node) if node is not None else {}
        levels = [labels[level] for level in snapshot.columns.domains.levels if labels.get(level)]
        path = given.pop(DOMAINS, "")
        assert list(given.values()) == levels, f"{name}: levels {given}, should be {levels}"
        assert path == "/".join(levels), f"{name}: path {path}, should be {levels}"


def _nodes_not_offered(state: ClusterState) -> None:
    """not_offered is complete."""
    should = {node.name for node in state.nodes.values() if not node.offered}
    assert state.node_sets.not_offered == should, (
        f"not offered: {state.node_sets.not_offered}, should be {should}"
    )


def _unhealthy_nodes(state: ClusterState) -> None:
    """node_sets.unhealthy is complete, and no pod has a planned GPU that is unhealthy."""
    ails = {node.name for node in state.nodes.values() if node.is_unhealthy()}
    assert state.node_sets.unhealthy == ails, (
        f"unhealthy nodes: {state.node_sets.unhealthy}, should be {ails}"
    )
    for name in ails:
        node = state.nodes[name]
        for pod in node.pods.values():
            planned = pod.gpus if not pod.observed else 0
            assert not planned & ~node.reported.healthy, (
                f"{pod.seen.name} has a planned GPU that is unhealthy"
            )


def _free_capacity(state: ClusterState, node: ClusterNode) -> None:
    """Free is allocatable less what the pods on the node are charged for."""
    snapshot = state.snapshot
    row = snapshot.columns.row.get(node.name)
    assert (row is not None) == (node.seen is not None), f"{node.name}: seen and row disagree"
    if row is None or node.seen is None:
        assert all(pod.charged_spec is None for pod in node.pods.values()), (
            f"{node.name} has no row, but charged pods"
        )
        return
    taken: Counter[str] = Counter()
    for pod in node.pods.values():
        assert pod.node == node.name, (
            f"{pod.seen.name} is indexed under {node.name}, not {pod.node}"
        )
        assert (pod.charged_spec is not None) == pod.alive, (
            f"{pod.seen.name}: charged and alive disagree"
        )
        if pod.charged_spec is not None:
            assert pod.charged_spec == pod.spec, f"{pod.seen.name} is charged for an old spec"
            taken.update(dict(pod.charged_spec.requests))
    has = node.allocatable()
    for resource, column in snapshot.columns.column.items():
        expected = has.get(resource, 0) - taken[resource]
        assert snapshot.columns.free[row, column] == expected, (
            f"{node.name}: {snapshot.columns.free[row, column]} {resource} free, should be {expected}"
        )


def _gpus(state: ClusterState, node: ClusterNode) -> None:
    """No GPU has two holders, planned or observed; free GPUs are healthy and have none."""
    holders: Counter[int] = Counter()
    parts = Counter(node.foreign_shares)
    taken = node.foreign_gpus | mask_of(parts)
    for pod in node.pods.values():
        assert pod.alive or not pod.gpus, f"{pod.seen.name} has ended and holds GPUs"
        taken |= pod.gpus
        if pod.share:
            assert pod.gpus.bit_count() <= 1, f"{pod.seen.name} has shares of two GPUs"
            if pod.gpus:
                parts[pod.gpus.bit_length() - 1] += pod.share
            offered = node.reported.offered[RANKS[pod.spec.memory_level]]
            sure = pod.observed or node.report is None or not pod.gpus & ~offered
            assert sure, f"{pod.seen.name}: its GPU is not shared at its enforcement level"
            continue
        assert pod.gpus.bit_count() <= pod.spec.request(GPU) or pod.observed, (
            f"{pod.seen.name} has more planned GPUs than it requests"
        )
        for index in range(pod.gpus.bit_length()):
            holders[index] += pod.gpus >> index & 1
    twice = [index for index, count in holders.items() if count > 1]
    assert not twice, f"{node.name}: GPUs {twice} are held twice"
    both = [index for index in parts if holders[index] or node.foreign_gpus >> index & 1]
    assert not both, f"{node.name}: GPUs {both} are held both whole and in shares"
    full = {index: part for index, part in parts.items() if part > WHOLE}
    assert not full, f"{node.name}: GPUs are shared beyond 100 hundredths: {full}"
    row = state.snapshot.columns.row.get(node.name)
    _nics(state, node)
    if row is not None and node.report is not None:
        healthy = node.report.topology.healthy_mask()
        plugin_gpus = state.snapshot.pod_counts.devices.plugin_gpus
        taken |= plugin_gpus.claimed(node.reported.claimable) | node.leftover
        assert state.snapshot.columns.gpus.free_mask[row] == healthy & ~taken, (
            f"{node.name}: free GPUs"
        )
        assert state.snapshot.columns.gpus.free_shares[row] == node.free_shares(), (
            f"{node.name}: free hundredths of shared GPUs"
        )


def _nics(state: ClusterState, node: ClusterNode) -> None:
    """The free NIC capacity is what a recount gives, and planned NICs exist and belong to pods there."""
    row, room = state.snapshot.columns.row.get(node.name), node.nic_capacity()
    if row is None:
        return
    kept = state.snapshot.columns.nics.get(row)
    assert kept == room, f"{node.name}: free NIC capacity is not what a recount gives"
    here = {(pod.seen.namespace, pod.seen.name) for pod in node.pods.values() if pod.charged_spec}
    dead = [key for key in node.planned_nics if key[:2] not in here]
    assert not dead, f"{node.name}: NICs are planned for {dead}, which are not there"
    unknown = {name for names in node.planned_nics.values() for name in names} - (
        room or NONE
    ).nics.keys()
    assert not unknown, f"{node.name}: NICs {unknown} are planned but not offered"


def _indices(state: ClusterState) -> None:
    for uid, pod in state.pods.items():
        assert pod.seen.uid == uid
        assert state.uids[(pod.seen.namespace, pod.seen.name)] == uid
        assert not pod.node or uid in state.nodes[pod.node].pods, (
            f"{pod.seen.name} is missing on its node"
        )
        has_node = pod.life.stage in (ASSUMED, BOUND)
        assert has_node == bool(pod.node), f"{pod.seen.name}: {pod.life.stage} on node {pod.node!r}"
        gang = state.gang_of(pod)
        assert (gang is not None) == pod.seen.ours, f"{pod.seen.name}: gang and ours disagree"
        assert gang is None or uid in gang.members
    for gang in state.gangs.values():
        assert gang.members or gang.object is not None, f"{gang.name} is empty"
        for uid in gang.members:
            assert uid in state.pods, f"{gang.name} has a pod that is gone"
    for gangs in (state.pending.waiting, state.pending.partial, state.pending.changed_gangs):
        assert all(state.gangs.get(key) is gang for key, gang in gangs.items())


def _owners(state: ClusterState) -> None:
    """Pods have their controllers' settings, and no pod with a node is held."""
    owners = state.owners
    recounts.check_owners(owners)
    for uid, fact in owners.pods.items():
        if uid in owners.held:
            assert uid not in state.pods, f"{fact.name} is held and known"
            assert not fact.node, f"{fact.name} is held and has a node"
        else:
            assert state.pods[uid].seen == owners.with_defaults(fact), (
                f"{fact.name} lacks its controller's settings"
            )


def _reservations(scheduler: Scheduler) -> None:
    """Each reservation is of a waiting gang, or of one that is moved, and its capacity is still free after the
    cycle."""
    snapshot = scheduler.state.snapshot
    heads = [held for held in scheduler.reservations.values() if not held.by_eviction]
    for one, other in combinations(heads, 2):
        assert one.queue != other.queue or not compete(snapshot, one.request, other.request), (
            f"{one.gang.name} and {other.gang.name} compete, and both have reservations"
        )
    for key, kept in scheduler.reservations.items():
        if kept.moved is None:
            assert scheduler.state.pending.waiting.get(key) is kept.gang, (
                f"{key} has a reservation and is not waiting"
            )
        free = snapshot.columns.free[kept.place.rows, : kept.withheld.shape[1]]
        assert (np.maximum(free, 0) >= kept.withheld).all(), (
            f"capacity reserved for {kept.gang.name} is in use"
        )
        volumes = snapshot.pod_counts.volumes.free
        assert volumes.available(kept.withheld_volumes) == kept.withheld_volumes, (
            f"volumes reserved for {kept.gang.name} are in use"
        )


def _candidates(scheduler: Scheduler) -> None:
    """What preemption keeps of each gang is what a fresh look at all gangs gives."""
    table = scheduler.preemption.candidates.table
    if not table.built:
        return
    known = _content(table.refresh())
    fresh = _content(VictimTable(scheduler.state).refresh())
    assert known.keys() == fresh.keys(), f"victims of {known.keys() ^ fresh.keys()}"
    for key, content in fresh.items():
        assert known[key] == content, f"the table of victims is out of date for {key[1]}"


def _content(table: VictimTable) -> dict[GangKey, tuple[object, ...]]:
    """Returns by gang all that the table keeps of it."""
    entries, by_slot = table.entries, table.by_slot
    return {
        gang.key: (
            [
                (*entries.ints[[0, 3, 4, 5, 6, 7], entry].tolist(), *entries.times[:, entry])
                for entry in range(*table._range(slot))
            ],
            [table.classes[n] for n in entries.podclass[slice(*table._range(slot))]],
            entries.pods[slice(*table._range(slot))],
            int(by_slot.rank[slot]),
            int(by_slot.surplus[slot]),
            int(by_slot.has_rules[slot]),
            victim_group(gang),
        )
        for gang, slot in table._slots.items()
    }


def _pod_classes(state: ClusterState) -> None:
    """Each pod has the class that the rules in use give it, and is counted on its node."""
    neighbours = state.snapshot.pod_counts
    known = set(neighbours.ids.values())
    used = {
        peers
        for pod in state.pods.values()
        if pod.seen.spec.rules is not None and state.podclasses.tracks(pod.seen)
        for peers in pod.seen.spec.rules.peers()
    }
    assert neighbours.ids.keys() == used, "the rules in use are not those of the pods"
    for pod in state.pods.values():
        now = state.podclasses.class_of(pod.seen)
        name = pod.seen.name
        assert known & set(pod.spec.matched) == set(now.matched), f"{name} has an outdated class"
        assert pod.spec.volumes == now.volumes, f"{name} has outdated volumes"
        assert pod.spec.devices == now.devices, f"{name} has outdated device claims"
    rows = state.snapshot.columns.row
    held = [
        (rows[pod.node], pod.charged_spec)
        for pod in state.pods.values()
        if pod.charged_spec is not None
    ]
    assert recounts.nonzero(neighbours) == recounts.expected(neighbours, held), (
        "counts of matching pods are not what a recount gives"
    )


def _queues(scheduler: Scheduler) -> None:
    """The accounts of queues and gangs are what a recount of all pods gives."""
    queues = scheduler.queues
    used: dict[str, Counter[str]] = {name: Counter() for name in queues.by_name}
    phases: dict[str, Counter[str]] = {}
    for gang in scheduler.state.gangs.values():
        if not (gang.foreign or gang.published.suspended):
            phases.setdefault(gang.queue_name, Counter())[phase(gang).lower()] += 1
        if SetAsideKey(ACCOUNT, gang.key) in scheduler.quarantine.set_asides:
            continue
        current = gang.key not in scheduler.state.pending.changed_gangs  # else updated next cycle
        if current:
            _account(queues, gang)
        if gang.account is not None:
            queue = queues.by_name[gang.account.queue]
            assert queue.gangs.get(gang.key) is gang, f"queue {queue.name} lacks {gang.name}"
            if current and gang.key in scheduler.state.pending.waiting:
                need = order.need(queues, gang, gang.missing())
                assert gang.attempt.need == need, f"{gang.name} needs {need} by now"
            for above in queue.path:
                used[above.name].update(gang.account.used)
    if not (scheduler.queue_statuses.stale or scheduler.state.pending.changed_gangs):
        counts = scheduler.queue_statuses.by_queue()
        assert counts == phases, f"gangs by queue and phase: {counts}, not {phases}"
    for queue in queues.by_name.values():
        _queue(scheduler, queue, used[queue.name])


def _account(queues: Queues, gang: Gang) -> None:
    """The gang's account has what its pods use, in the queue that it is in."""
    taken: dict[str, int] = {}
    for pod in gang.members.values():
        counted = (*pod.spec.requests, *pod.spec.charges) if pod.node and pod.alive else ()
        for resource, amount in counted:
            taken[resource] = taken.get(resource, 0) + amount
    charged = queues.counts(gang)
    assert (gang.account is not None) == charged, f"{gang.name} has no account"
    if gang.account is None:
        return
    assert gang.account.used == queues.currency.counted(taken), (
        f"{gang.name}: another use in its account"
    )
    name = queues.name_of(gang)
    moved = bool(taken) and queues.refusing_queue(gang, name) is not None
    assert gang.queue_name == name or moved, f"{gang.name}: another queue in its account"


def _queue(scheduler: Scheduler, queue: Queue, used: Mapping[str, int]) -> None:
    """The queue's sums are those of its gangs, and its place in the tree is that of its object."""
    assert queue.used == used, f"queue {queue.name}: {queue.used} is not what its gangs use"
    assert all(scheduler.state.gangs.get(key) is gang for key, gang in queue.gangs.items())
    _usage_by_priority(scheduler, queue)
    root = scheduler.queues.root
    in_tree = queue.path[-1] is root
    assert in_tree != bool(queue.error), (
        f"queue {queue.name} is both valid and outside the tree, or neither"
    )
    assert not in_tree or queue is root or queue in queue.path[1].children


def _usage_by_priority(scheduler: Scheduler, queue: Queue) -> None:
    if scheduler.state.pending.changed_gangs:
        return  # updated next cycle
    recount = UsageByPriority()
    for gang in queue.gangs.values():
        if gang.account is not None and any(gang.account.used.values()):
            recount.add(gang, gang.account.used)
    kept = queue.usage_by_priority
    for part in ("_in_all", "_in_namespace", "_counted"):
        same = getattr(kept, part) == getattr(recount, part)
        assert same, f"queue {queue.name}: another use by priority"


def _cached_capacities(state: ClusterState, classes: slice) -> None:
    """What is cached and updated equals what is computed from scratch."""
    for view in [*state.snapshot._views.values()][classes]:
        kept_cap = view.refresh().by_row.copy()
        kept_sums = [sums.copy() for sums in view.by_domain]
        passed = view.passed_rows()
        view.reset()
        view.refresh()
        assert (view.by_row == kept_cap).all(), (
            "the capacity of a class is not what a recount gives"
        )
        assert np.array_equal(passed, view.passed_rows()), (
            "the nodes that pass the filters are not those of a recount"
        )
        for kept, sums in zip(kept_sums, view.by_domain, strict=True):
            assert np.array_equal(kept, sums), (
                "the capacity of a domain is not what a recount gives"
            )
        if view.preference is not None:
            fresh = PreferenceScore(
                state.snapshot.columns, state.snapshot.pod_counts, view.spec
            ).score()
            assert (view.preference.score() == fresh).all(), (
                "a preference score is not what a recount gives"
            )
    for harm, fresh in recounts.costs(state.snapshot.mix):
        assert (harm == fresh).all(), "a fragmentation cost is not what a recount gives"


def _device_claims(state: ClusterState) -> None:
    """No device is in two hands, and each planned claim is one of a pod with a node."""
    claims = state.podclasses.device_claims
    overused = recounts.overused(claims.allocation)
    assert not overused, f"devices {overused} are held twice, or more of them than there is"
    for (namespace, claim), plan in claims.plans.items():
        for uid in plan.pods:
            pod = state.pods.get(uid)
            assert pod is not None, f"claim {claim} has devices planned for a deleted pod"
            assert pod.node, f"claim {claim} has devices for {pod.seen.name}, which has no node"
            assert pod.seen.namespace == namespace
    rows = state.snapshot.columns.row
    held = Counter(
        (rows[pod.node], pod.charged_spec.devices)
        for pod in state.pods.values()
        if pod.charged_spec is not None
        and pod.charged_spec.devices is not None
        and pod.charged_spec.devices.asks
    )
    assert recounts.pods_taken(claims.allocation) == held, "devices are taken without a pod"


def _volumes(state: ClusterState) -> None:
    """No volume is planned or in use twice, and each planned volume is for a pod with a node."""
    assignment, storage = state.snapshot.pod_counts.volumes, state.podclasses.storage
    recounts.check_free_volumes(assignment.free)
    plans = storage.plans.planned()
    volumes = Counter(volume for volume, _ in plans.values() if volume)
    twice = [volume for volume, count in volumes.items() if count > 1]
    assert not twice, f"volumes {twice} are planned for two claims"
    for (namespace, claim), (_, uids) in plans.items():
        for uid in uids:
            pod = state.pods.get(uid)
            assert pod is not None, f"claim {claim} has a plan for a deleted pod"
            assert pod.node, f"claim {claim} has a plan for {pod.seen.name}, which has no node"
            assert (pod.seen.namespace, claim) in ((namespace, name) for name in pod.seen.claims)
    rows = state.snapshot.columns.row
    held: Counter[tuple[int, Volumes]] = Counter(
        (rows[pod.node], pod.charged_spec.volumes)
        for pod in state.pods.values()
        if pod.charged_spec is not None
        and pod.charged_spec.volumes is not None
        and (pod.charged_spec.volumes.wants or pod.charged_spec.volumes.shared)
    )
    assert recounts.pods_assigned(assignment) == held, "volumes are assigned without a pod"
    assert assignment.free.reserved == {*volumes, *assignment.assigned()}, (
        "volumes are reserved for no claim"
    )


if __name__ == "__main__":
    check_journal(sys.argv[1])

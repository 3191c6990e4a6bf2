"""What must hold after every turn, recomputed from nothing. Raises AssertionError, naming the
broken promise."""

from collections import Counter

import numpy as np

from central.model.volumes import Volumes
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.nic_limits import NicCapacity
from central.scheduler.inventory.pods import ASSUMED, BOUND
from central.scheduler.queues.min_resources import outstanding
from central.scheduler.scheduler import Scheduler
from central.scheduler.scoring.preferences import PreferenceScore
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.status.gang_status import phase
from protos.gpu_sharing import RANKS, WHOLE
from protos.names import DOMAINS, GPU
from protos.topology import RdmaLimit, mask_of

NONE = NicCapacity({}, RdmaLimit())


def check_invariants(scheduler: Scheduler) -> None:
    """Raises AssertionError where an invariant does not hold."""
    state = scheduler.state
    for node in state.nodes.values():
        _room(state, node)
        _gpus(state, node)
    _told(state)
    _ailing(state)
    _filing(state)
    _owners(state)
    _reserved(scheduler)
    _kinds(state)
    _volumes(state)
    _queues(scheduler)
    _pledged(scheduler)
    _views(state)
    scheduler.controllers.check(state)


def _pledged(scheduler: Scheduler) -> None:
    """What is promised to gangs is what they have not taken yet."""
    kept = {key: sums for key, (_, sums) in scheduler.min_resources.by_gang.items()}
    owes = {
        gang.key: sums
        for gang in scheduler.state.gangs.values()
        if gang.key not in scheduler.state.pending.changed_gangs and (sums := outstanding(gang))
    }
    for key in scheduler.state.pending.changed_gangs:
        kept.pop(key, None)
    assert kept == owes, f"promised: {kept}, should be {owes}"


def _told(state: ClusterState) -> None:
    """What pods are told of where their node is, is where it is."""
    snapshot = state.snapshot
    for name, row in snapshot.columns.row.items():
        node, told = snapshot.columns.nodes[row], dict(snapshot.columns.domains.annotations(row))
        labels = snapshot.labels_of(node) if node is not None else {}
        levels = [labels[level] for level in snapshot.columns.domains.levels if labels.get(level)]
        whole = told.pop(DOMAINS, "")
        assert list(told.values()) == list(levels), f"{name}: told {told}, is in {levels}"
        assert whole == "/".join(levels), f"{name}: told {whole}, is in {levels}"


def _ailing(state: ClusterState) -> None:
    """Nodes with unfit GPUs are known, and no pod is planned onto such a GPU."""
    ails = {node.name for node in state.nodes.values() if node.is_unhealthy()}
    assert state.unhealthy_nodes == ails, f"ailing: {state.unhealthy_nodes}, should be {ails}"
    for name in ails:
        node = state.nodes[name]
        for pod in node.pods.values():
            planned = pod.gpus if not pod.observed else 0
            assert not planned & ~node.healthy(), f"{pod.seen.name} is planned onto an unfit GPU"


def _room(state: ClusterState, node: ClusterNode) -> None:
    """What is free is what there is, less what those who are there take."""
    snapshot = state.snapshot
    row = snapshot.columns.row.get(node.name)
    assert (row is not None) == (node.seen is not None), f"{node.name}: seen and row disagree"
    if row is None or node.seen is None:
        assert all(pod.charged_spec is None for pod in node.pods.values()), (
            f"{node.name}: held nowhere"
        )
        return
    taken: Counter[str] = Counter()
    for pod in node.pods.values():
        assert pod.node == node.name, f"{pod.seen.name} is filed under {node.name}, not {pod.node}"
        assert (pod.charged_spec is not None) == pod.alive, (
            f"{pod.seen.name}: held and alive disagree"
        )
        if pod.charged_spec is not None:
            assert pod.charged_spec == pod.spec, f"{pod.seen.name} holds what it no longer asks for"
            taken.update(dict(pod.charged_spec.requests))
    has = node.allocatable()
    for resource, column in snapshot.columns.column.items():
        expected = has.get(resource, 0) - taken[resource]
        assert snapshot.columns.free[row, column] == expected, (
            f"{node.name}: {snapshot.columns.free[row, column]} {resource} free, should be {expected}"
        )


def _gpus(state: ClusterState, node: ClusterNode) -> None:
    """No GPU is planned for or held by two, and free is what is healthy and nobody's."""
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
            sure = pod.observed or not pod.gpus & ~node.offered()[RANKS[pod.spec.memory_level]]
            assert sure, f"{pod.seen.name}: its GPU may not be shared so, or enforces too little"
            continue
        assert pod.gpus.bit_count() <= pod.spec.request(GPU) or pod.observed, (
            f"{pod.seen.name} is planned more GPUs than it asks for"
        )
        for index in range(pod.gpus.bit_length()):
            holders[index] += pod.gpus >> index & 1
    twice = [index for index, count in holders.items() if count > 1]
    assert not twice, f"{node.name}: GPUs {twice} are held twice"
    both = [index for index in parts if holders[index] or node.foreign_gpus >> index & 1]
    assert not both, f"{node.name}: GPUs {both} are held as a whole and in shares"
    full = {index: part for index, part in parts.items() if part > WHOLE}
    assert not full, f"{node.name}: {full} hundredths of GPUs are given"
    row = state.snapshot.columns.row.get(node.name)
    _cards(state, node)
    if row is not None and node.report is not None:
        healthy = node.report.topology.healthy_mask()
        assert state.snapshot.columns.gpus.free_mask[row] == healthy & ~taken, (
            f"{node.name}: free GPUs"
        )
        assert state.snapshot.columns.gpus.free_shares[row] == node.free_shares(), (
            f"{node.name}: what is left of open GPUs"
        )


def _cards(state: ClusterState, node: ClusterNode) -> None:
    """What is left of network cards is what a recount gives, and whoever is there has cards that exist."""
    row, room = state.snapshot.columns.row.get(node.name), node.nic_capacity()
    if row is None:
        return
    kept = state.snapshot.columns.nics.get(row)
    assert kept == room, f"{node.name}: what is left of network cards is not what a recount gives"
    here = {(pod.seen.namespace, pod.seen.name) for pod in node.pods.values() if pod.charged_spec}
    dead = [key for key in node.planned_nics if key[:2] not in here]
    assert not dead, f"{node.name}: network cards are planned for {dead}, who is not there"
    unknown = {name for names in node.planned_nics.values() for name in names} - (
        room or NONE
    ).nics.keys()
    assert not unknown, f"{node.name}: {unknown} are planned and not offered"


def _filing(state: ClusterState) -> None:
    for uid, pod in state.pods.items():
        assert pod.seen.uid == uid
        assert state.uids[(pod.seen.namespace, pod.seen.name)] == uid
        assert not pod.node or uid in state.nodes[pod.node].pods, f"{pod.seen.name} is lost"
        has_node = pod.life.stage in (ASSUMED, BOUND)
        assert has_node == bool(pod.node), f"{pod.seen.name}: {pod.life.stage} on node {pod.node!r}"
        gang = state.gang_of(pod)
        assert (gang is not None) == pod.seen.ours, f"{pod.seen.name} has no gang"
        assert gang is None or uid in gang.members
    for gang in state.gangs.values():
        assert gang.members or gang.object is not None, f"{gang.name} is empty"
        for uid in gang.members:
            assert uid in state.pods, f"{gang.name} keeps a pod that is gone"
    for filed in (state.pending.waiting, state.pending.partial, state.pending.changed_gangs):
        assert all(state.gangs.get(key) is gang for key, gang in filed.items())


def _owners(state: ClusterState) -> None:
    """Pods are what their controllers make them; nobody is held who has a place."""
    owners = state.owners
    owners.check()
    for uid, fact in owners.pods.items():
        if uid in owners.held:
            assert uid not in state.pods, f"{fact.name} is held and known"
            assert not fact.node, f"{fact.name} is held though it has a place"
        else:
            assert state.pods[uid].seen == owners.with_defaults(fact), f"{fact.name} is another's"


def _reserved(scheduler: Scheduler) -> None:
    """Room that is kept is still there after the turn, and for somebody who waits for it."""
    snapshot = scheduler.state.snapshot
    heads: Counter[str] = Counter()
    for key, kept in scheduler.reservations.items():
        assert scheduler.state.pending.waiting.get(key) is kept.gang, (
            f"room is kept for {key}, who does not wait"
        )
        heads[kept.queue] += not kept.made
        free = snapshot.columns.free[kept.rows, : kept.kept.shape[1]]
        assert (np.maximum(free, 0) >= kept.kept).all(), (
            f"room of {kept.gang.name} was given to others"
        )
        volumes = snapshot.pod_counts.volumes.free
        assert volumes.available(kept.shelved) == kept.shelved, (
            f"volumes kept for {kept.gang.name} were given to others"
        )
    assert all(count <= 1 for count in heads.values()), "a queue has two heads"


def _kinds(state: ClusterState) -> None:
    """Pods are of the kind that the known rules make them, and counted where they are."""
    neighbours = state.snapshot.pod_counts
    known = set(neighbours.ids.values())
    used = {
        peers
        for pod in state.pods.values()
        if pod.seen.spec.rules is not None
        for peers in pod.seen.spec.rules.peers()
    }
    assert neighbours.ids.keys() == used, "the rules that are known are not those that pods have"
    for pod in state.pods.values():
        now = state.podclasses.class_of(pod.seen)
        name = pod.seen.name
        assert known & set(pod.spec.matched) == set(now.matched), f"{name} is of another kind"
        assert pod.spec.volumes == now.volumes, f"{name} has other volumes by now"
    rows = state.snapshot.columns.row
    held = [
        (rows[pod.node], pod.charged_spec)
        for pod in state.pods.values()
        if pod.charged_spec is not None
    ]
    assert neighbours.nonzero() == neighbours.expected(held), (
        "neighbours are not what a recount gives"
    )


def _queues(scheduler: Scheduler) -> None:
    """The books of the queues say what a recount of all pods says."""
    queues = scheduler.queues
    used: dict[str, Counter[str]] = {name: Counter() for name in queues.by_name}
    phases: dict[str, Counter[str]] = {}
    for gang in scheduler.state.gangs.values():
        if (
            gang.key not in scheduler.state.pending.changed_gangs
        ):  # else it is filed with the next turn
            taken: dict[str, int] = {}
            for pod in gang.members.values():
                for resource, amount in pod.seen.spec.requests if pod.node and pod.alive else ():
                    taken[resource] = taken.get(resource, 0) + amount
            assert (gang.account is not None) == queues.enabled, f"{gang.name} is not in the books"
            if gang.account is not None:
                assert gang.account.used == taken, f"{gang.name} is in the books with other use"
                assert gang.account.queue == queues.name_of(gang), f"{gang.name}: another queue"
        if gang.account is not None:
            queue = queues.by_name[gang.account.queue]
            assert queue.gangs.get(gang.key) is gang, (
                f"queue {queue.name} does not know {gang.name}"
            )
            for above in queue.path:
                used[above.name].update(gang.account.used)
        if (
            queues.enabled
            and gang.key not in scheduler.state.pending.changed_gangs
            and gang.account is not None
        ):
            phases.setdefault(gang.account.queue, Counter())[phase(gang).lower()] += 1
    for queue in queues.by_name.values():
        if not scheduler.state.pending.changed_gangs and queues.enabled:
            counts = scheduler.queue_statuses.counts(queue.name)
            assert counts == phases.get(queue.name, Counter()), f"queue {queue.name}: {counts}"
        assert queue.used == used[queue.name], f"queue {queue.name}: {queue.used} is not its use"
        assert all(scheduler.state.gangs.get(key) is gang for key, gang in queue.gangs.items())
        in_tree = queue.path[-1] is queues.root
        assert in_tree != bool(queue.error), f"queue {queue.name} is neither in the tree nor out"
        assert not in_tree or queue is queues.root or queue in queue.path[1].children


def _views(state: ClusterState) -> None:
    """What is kept up to date equals what is computed anew."""
    for view in state.snapshot.views():
        kept_cap = view.refresh().by_row.copy()
        kept_sums = [sums.copy() for sums in view.by_domain]
        view.reset()
        view.refresh()
        assert (view.by_row == kept_cap).all(), "a kind's room is not what a recount gives"
        for kept, sums in zip(kept_sums, view.by_domain, strict=True):
            assert np.array_equal(kept, sums), "a domain's room is not what a recount gives"
        if view.preference is not None:
            fresh = PreferenceScore(
                state.snapshot.columns, state.snapshot.pod_counts, view.spec
            ).score()
            assert (view.preference.score() == fresh).all(), "a kind would rather be elsewhere"
    for harm, fresh in state.snapshot.mix.kept():
        assert (harm == fresh).all(), "what a load would do is not what a recount gives"


def _volumes(state: ClusterState) -> None:
    """No volume is planned or taken twice, and each plan is for a pod that has a node."""
    assignment, storage = state.snapshot.pod_counts.volumes, state.podclasses.storage
    assignment.free.check()
    plans = storage.plans.planned()
    volumes = Counter(volume for volume, _ in plans.values() if volume)
    twice = [volume for volume, count in volumes.items() if count > 1]
    assert not twice, f"volumes {twice} are planned for two claims"
    for (namespace, claim), (_, uids) in plans.items():
        for uid in uids:
            pod = state.pods.get(uid)
            assert pod is not None, f"claim {claim} has a plan for a pod that is gone"
            assert pod.node, f"claim {claim} has a plan for {pod.seen.name}, which has no place"
            assert (pod.seen.namespace, claim) in ((namespace, name) for name in pod.seen.claims)
    rows = state.snapshot.columns.row
    held: Counter[tuple[int, Volumes]] = Counter(
        (rows[pod.node], pod.charged_spec.volumes)
        for pod in state.pods.values()
        if pod.charged_spec is not None
        and pod.charged_spec.volumes is not None
        and (pod.charged_spec.volumes.wants or pod.charged_spec.volumes.shared)
    )
    assert assignment.pods_assigned() == held, "volumes are assigned without a pod"
    assert assignment.free.reserved == {*volumes, *assignment.assigned()}, (
        "volumes are reserved for no claim"
    )

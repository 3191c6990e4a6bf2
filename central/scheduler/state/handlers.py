"""Facts about pods, their controllers, gangs and nodes, applied to the state.

One pod fact may change all of these together: the pod's node and devices, what the node is charged,
its gang's counts, and the class by which placement decides."""

from collections.abc import Sequence

from central.model import facts, native_podgroup
from central.model.device_claims import DeviceFact
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import (
    BIND_FAILED,
    BOUND,
    DEVICES_UNKNOWN,
    EVICTION_AGREED,
    EVICTION_ENDED,
    NO_WORK,
    PLACED,
    SEEN_BOUND,
    EvictionBackoff,
    Pod,
    Work,
    transition,
)
from central.scheduler.state import gang_members, reclassification
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from protos import slicing
from protos.names import GPU, GPU_SHARE

# --- pods and their controllers ----------------------------------------------


def admit_pod(state: ClusterState, fact: facts.PodSeen) -> None:
    made = state.owners.admit(fact, state.now, known=fact.uid in state.pods)
    if made is not None:
        update_pod(state, made)


def update_owner(state: ClusterState, fact: facts.OwnerSeen) -> None:
    for made in state.owners.update(fact):
        update_pod(state, made)


def release_held_pods(state: ClusterState, now: float) -> None:
    for made in state.owners.expire_held(now) if state.owners.held else ():
        update_pod(state, made)


# --- what the API server says of a pod ---------------------------------------


# No eviction of a pod is asked for again before this time after a refusal; each refusal doubles it.
EVICTION_BACKOFF_S = 60.0
EVICTION_BACKOFF_MAX_S = 3600.0
EVICTION_UNKNOWN_S = 5.0  # after no answer at all


def update_pod(state: ClusterState, fact: facts.PodSeen, gpus: int = 0) -> None:
    """gpus: of a pod that the state does not have yet, those that are planned or observed"""
    fact = state.owners.composites.of_pod(fact)
    name = (fact.namespace, fact.name)
    other = state.uids.get(name)
    if other is not None and other != fact.uid:
        delete_pod(state, other)  # deleted and created again with the same name
    state.uids[name] = fact.uid
    state.any_pod.movable |= fact.movable
    state.any_pod.cooldown |= fact.cooldown_s > 0
    pod = state.pods.get(fact.uid)
    stale: facts.PodSeen | None = None
    if pod is None:
        pod = state.pods[fact.uid] = Pod(fact, fact.spec)
        pod.gpus = gpus if fact.node else 0
        state.snapshot.mix.observe(fact.spec)
        reclassification.classify(state, pod, None)
        gang_members.join(state, pod, first_sight=True)
    elif pod.seen == fact:  # its status changed in fields that decide nothing
        _note_condition(state, pod, fact)
        return
    else:
        stale = pod.seen
        _replace_fact(state, pod, fact)
    if fact.phase == "Running" and pod.since is None:
        pod.work = pod.work._replace(since=state.now)
    if fact.node and pod.life.stage != BOUND:
        pod.advance(SEEN_BOUND)
    _note_other(state, pod)
    if stale is not None and _job(stale) != _job(fact):  # its owner references were edited
        state.observer.pod_gone(stale, evicting=pod.evicting)
    state.observer.pod_seen(fact, evicting=pod.evicting)
    if stale is None and not fact.node:
        return  # there is nothing to charge
    # A pod is never unbound: a fact without a node is older than the binding.
    moved = bool(pod.node and fact.node and fact.node != pod.node)  # another scheduler bound it
    devices_lost = moved or (stale is not None and _devices(stale.spec) != _devices(fact.spec))
    move_pod(state, pod, fact.node or pod.node, 0 if devices_lost else pod.gpus)
    if devices_lost and pod.node:
        pod.advance(DEVICES_UNKNOWN)
        reconcile_gpus(state, state.nodes[pod.node])
    if stale is not None and stale.spec != fact.spec:
        reclassification.drop_rules(state, stale)


def _note_condition(state: ClusterState, pod: Pod, fact: facts.PodSeen) -> None:
    """The condition of a pending pod is written again where it is not the one that was decided last."""
    before, pod.seen = pod.seen, fact
    gang = state.gang_of(pod) if before.told != fact.told else None
    if gang is not None and gang.published.told.get(fact.uid, before.told) != fact.told:
        gang.published.told[fact.uid] = fact.told
        state.pending.publish(gang)


def _replace_fact(state: ClusterState, pod: Pod, fact: facts.PodSeen) -> None:
    """The pod is in the gang, and of the class, that it says now."""
    before = pod.seen
    rejoin = fact.gang_key != before.gang_key
    if rejoin:
        gang_members.leave(state, pod)
    pod.seen = fact
    if (before.phase, before.deleting) != (fact.phase, fact.deleting):
        state.pending.budget_uses_changed += 1
    reclassification.classify(state, pod, before)
    reclassification.on_claims_changed(state, fact, before)
    if rejoin:
        gang_members.join(state, pod, first_sight=False)


def _note_other(state: ClusterState, pod: Pod) -> None:
    """Records a pod without a gang that is terminating, or that requests devices."""
    if pod.seen.gang_key is not None:
        state.forget_other(pod.seen.uid)
        return
    if pod.leaving:
        state.set_other_leaving(pod)
    state.set_other_with_devices(pod, slicing.requests_devices(pod.seen.spec.requests))


def _job(pod: facts.PodSeen) -> tuple[str, str]:
    """Name and uid of the Job that the pod belongs to; both empty: none."""
    return (pod.part.job, pod.part.job_uid) if pod.part is not None else ("", "")


def _devices(spec: facts.PodSpec) -> tuple[int, int]:
    """GPUs and shares that the spec requests. Other numbers void the planned and observed devices."""
    return spec.request(GPU), spec.request(GPU_SHARE)


def delete_pod(state: ClusterState, uid: str) -> None:
    state.owners.forget_pod(uid)
    pod = state.pods.pop(uid, None)
    if pod is None:
        return
    state.forget_other(uid)
    state.observer.pod_gone(pod.seen, evicting=pod.evicting)
    name = (pod.seen.namespace, pod.seen.name)
    if pod.node:
        state.nodes[pod.node].reported.forget(uid, name)
        refund(state, pod)
        _leave_node(state, pod)
    reclassification.on_unassigned(state, pod)
    reclassification.index_pod(state, None, pod.seen)
    reclassification.drop_rules(state, pod.seen)
    gang_members.leave(state, pod)
    if state.uids.get(name) == uid:
        del state.uids[name]


def bind_failed(state: ClusterState, fact: facts.BindFailed) -> None:
    pod = state.pods.get(fact.pod)
    if pod is None or not pod.assumed or pod.node != fact.node:
        return  # the pod is gone, or the watch has shown its node since
    pod.advance(BIND_FAILED, fact.why if fact.final else "")
    move_pod(state, pod, "")
    reclassification.on_unassigned(state, pod)
    gang = state.gang_of(pod)
    if gang is not None:
        gang.attempt.bind_failures += 1
        if not fact.final:
            gang.attempt.reason = f"could not bind pod {pod.seen.name}: {fact.why}; retrying"


def evict_done(state: ClusterState, fact: facts.EvictDone) -> None:
    pod = state.pods.get(fact.pod)
    if pod is None:
        return
    if not fact.why:
        pod.advance(EVICTION_AGREED)
        return
    if not pod.evicting:
        return  # reported twice
    pod.advance(EVICTION_ENDED)
    refusals = pod.evict_backoff.refusals
    if fact.unknown:
        not_before = state.now + EVICTION_UNKNOWN_S
    else:
        not_before = state.now + min(EVICTION_BACKOFF_S * 2**refusals, EVICTION_BACKOFF_MAX_S)
        refusals = min(refusals + 1, 10)
    pod.evict_backoff = EvictionBackoff(refusals, not_before)
    state.pending.preemption_retry_at.add(not_before)
    gang_members.member_changed(state, pod)


def device_class(state: ClusterState, fact: facts.DeviceClassSeen) -> None:
    classes = state.snapshot.pod_counts.devices.classes
    if classes.get(fact.name) != (fact if fact.resource is not None else None):
        reclassification.devices_changed(state, fact)


def devices_changed(state: ClusterState, fact: DeviceFact) -> None:
    reclassification.devices_changed(state, fact)
    for name in state.podclasses.device_claims.claims_on.take_changed():
        state.nodes_to_notify.add(name)
        if (node := state.nodes.get(name)) is not None:
            reconcile_gpus(state, node)


# --- nodes, from the API server and from agents -------------------------------


def update_node(state: ClusterState, fact: facts.NodeSeen) -> None:
    node = node_of(state, fact.name)
    if node.seen == fact:
        return
    before, node.seen = node.seen, fact
    if before is None or before.labels != fact.labels:
        state.network.put_node(fact)
    if fact.ready and not fact.unschedulable:
        state.node_sets.unschedulable.discard(fact.name)
    else:
        state.node_sets.unschedulable.add(fact.name)
    (set.discard if fact.ready else set.add)(state.node_sets.not_ready, fact.name)
    _put_row(state, node)
    if before is None:
        for pod in node.pods.values():
            charge(state, pod)
            gang_members.touch(state, pod)
        if node.pods or node.report is not None:
            reconcile_gpus(state, node)
        else:  # of tens of thousands that are listed before their agents report; the row is new
            state.nodes_to_notify.add(node.name)


def delete_node(state: ClusterState, name: str) -> None:
    node = state.nodes.get(name)
    if node is None or node.seen is None:
        return
    for pod in node.pods.values():
        gpus = pod.gpus
        refund(state, pod)
        pod.gpus = gpus  # it may still have them when the kubelet adds its node again
        gang_members.touch(state, pod)
    node.seen = None
    node.drop_report()
    set_offered(state, node, True)
    state.node_sets.unschedulable.discard(name)
    state.node_sets.not_ready.discard(name)
    state.snapshot.drop_node(name)
    reclassification.offers_changed(state)
    state.network.drop_node(name)
    _update_health(state, node)
    forget_if_empty(state, name)


def apply_report(state: ClusterState, fact: facts.NodeReported) -> None:
    node = node_of(state, fact.node)
    node.silent = False
    before = node.merged()
    if node.apply_report(fact):
        if node.merged() != before:
            _put_row(state, node)
        reconcile_gpus(state, node)
        _update_health(state, node)
    elif node.report_failed:  # what was lost is known
        node.report_failed = False
        _put_row(state, node)


def lose_report(state: ClusterState, name: str) -> None:
    """The node's newest report could not be applied, so the node gets no more pods until one is."""
    node = node_of(state, name)
    if not node.report_failed:
        node.report_failed = True
        _put_row(state, node)


def node_silent(state: ClusterState, fact: facts.NodeSilent) -> None:
    node = node_of(state, fact.node)
    node.silent = True
    # The kubelet has withdrawn the devices by now if it does not have them.
    set_offered(state, node, True)


def node_offers(state: ClusterState, fact: facts.NodeOffers) -> None:
    set_offered(state, node_of(state, fact.node), fact.offered)


def set_offered(state: ClusterState, node: ClusterNode, offered: bool) -> None:
    """Records whether the kubelet offers the node's devices. The node's row stays as it is, so that plans for it
    stay valid."""
    if offered == node.offered:
        return
    node.offered = offered
    if offered:
        state.node_sets.not_offered.discard(node.name)
        state.pending.capacity_freed("devices offered again")
    else:
        state.node_sets.not_offered.add(node.name)
    columns = state.snapshot.columns
    if (row := columns.row.get(node.name)) is not None:
        columns.dirty.add([row])  # for those who show it


def _put_row(state: ClusterState, node: ClusterNode) -> None:
    """Writes what the API server and the agent report into the node's row of the snapshot."""
    if (merged := node.merged()) is None:
        return
    snapshot = state.snapshot
    new = snapshot.columns.unknown(merged.allocatable)
    moved = [
        (snapshot.columns.row[pod.node], spec)
        for pod in (state.pods.values() if new else ())
        if (spec := pod.charged_spec) is not None and not new.isdisjoint(dict(spec.requests))
    ]
    for row, spec in moved:
        snapshot.give(row, spec)
    snapshot.put_node(merged)
    for row, spec in moved:
        snapshot.take(row, spec)
    reclassification.offers_changed(state)


def _update_health(state: ClusterState, node: ClusterNode) -> None:
    """Marks the gangs on a node that has, or had, unhealthy devices: their reasons name these."""
    unhealthy, was_unhealthy = node.is_unhealthy(), node.name in state.node_sets.unhealthy
    if unhealthy:
        state.node_sets.unhealthy.add(node.name)
    else:
        state.node_sets.unhealthy.discard(node.name)
    if unhealthy or was_unhealthy:
        for pod in node.pods.values():
            gang_members.member_changed(state, pod)


# --- the node of a pod, and what it is charged there -------------------------


def move_pod(state: ClusterState, pod: Pod, where: str, gpus: int = 0) -> None:
    """Moves the pod to the node with these planned GPUs; where is empty for a pod without a node.
    Cheap if nothing changed: most updates of a pod concern its status only."""
    moved = pod.node != where
    if moved or not pod.alive or pod.charged_spec != pod.spec or pod.gpus != gpus:
        refund(state, pod)
    if moved and pod.node:
        _leave_node(state, pod)
    if moved and where:
        pod.node = where
        node_of(state, where).pods[pod.seen.uid] = pod
        node_of(state, where).reported.adopt(pod.seen.uid, (pod.seen.namespace, pod.seen.name))
        _notify_agent(state, pod)
    pod.gpus = gpus if where and pod.alive else 0
    charge(state, pod)
    if where and node_of(state, where).reported.has((pod.seen.namespace, pod.seen.name)):
        # its agent reported the pod before the API server did
        reconcile_gpus(state, node_of(state, where))
    gang_members.member_changed(state, pod)


def _leave_node(state: ClusterState, pod: Pod) -> None:
    """The pod has no node any more. What it is charged there was given back."""
    state.nodes[pod.node].pods.pop(pod.seen.uid, None)
    _notify_agent(state, pod)
    forget_if_empty(state, pod.node)
    pod.node, pod.gpus = "", 0
    if pod.life.observed:
        pod.advance(DEVICES_UNKNOWN)


def charge(state: ClusterState, pod: Pod) -> None:
    """Takes what the pod uses from its node's free capacity, once. A pod that has ended uses none."""
    row = state.snapshot.columns.row.get(pod.node)
    if row is None or pod.charged_spec is not None or not pod.alive:
        return
    state.snapshot.take(row, pod.spec, 1, pod.gpus)
    pod.charged_spec = pod.spec
    assign_nics(state, pod)
    if pod.spec.matched:
        state.pending.capacity_freed("pod that affinity matches placed")


def assign_nics(state: ClusterState, *pods: Pod) -> None:
    """Plans NICs for pods that were just charged to their nodes."""
    for name in sorted({pod.node for pod in pods if pod.spec.rdma_containers}):
        node = state.nodes[name]
        if node.reported.nics is not None:
            node.assign_nics()
            state.snapshot.put_nics(state.snapshot.columns.row[name], node.nic_capacity())


def refund(state: ClusterState, pod: Pod) -> None:
    """Gives back what charge() took, with the pod's planned GPUs."""
    if pod.charged_spec is None:
        return
    state.snapshot.give(state.snapshot.columns.row[pod.node], pod.charged_spec)
    counted = (
        bool(pod.charged_spec.rdma_containers) and state.nodes[pod.node].reported.nics is not None
    )
    pod.charged_spec = None
    if pod.gpus or counted:
        pod.gpus = 0
        _update_row(state, state.nodes[pod.node])


def _update_row(state: ClusterState, node: ClusterNode) -> None:
    row = state.snapshot.columns.row.get(node.name)
    if row is not None:
        node.assign_nics()
        state.snapshot.put_nics(row, node.nic_capacity())
        reported = node.reported
        state.snapshot.put_gpus(
            row,
            reported.shape,
            node.free(),
            reported.offered,
            node.free_shares(),
            claimable=reported.claimable,
            plugin=reported.plugin,
        )
        state.snapshot.columns.gpus.install(row, node.installed())


def reconcile_gpus(state: ClusterState, node: ClusterNode) -> None:
    """Replaces plans that contradict observed devices or claims, and updates the node's row."""
    claims, claimable = state.podclasses.device_claims, node.reported.claimable
    if claimable or node.claimed:
        mask = claims.allocation.plugin_gpus.claimed(claimable)
        node.set_claimed(mask, claims.claims_on.plans(node.name))
    if not state.keeps_plans:
        node.reconcile_devices(lambda name: state.pods.get(state.uids.get(name, "")))
    state.nodes_to_notify.add(node.name)
    _update_row(state, node)


def _notify_agent(state: ClusterState, pod: Pod) -> None:
    if pod.spec.request(GPU) or pod.spec.share_containers or pod.spec.has_nics:
        state.nodes_to_notify.add(pod.node)


def node_of(state: ClusterState, name: str) -> ClusterNode:
    node = state.nodes.get(name)
    if node is None:
        node = state.nodes[name] = ClusterNode(name)
    return node


def forget_if_empty(state: ClusterState, name: str) -> None:
    node = state.nodes.get(name)
    if node is None or node.seen is not None or node.pods:
        return
    if node.report is None and not node.report_failed and node.offered:
        del state.nodes[name]


def assume(
    state: ClusterState,
    gang: Gang,
    members: Sequence[Pod],
    where: Sequence[str],
    gpus: Sequence[int],
) -> None:
    """Records bindings before the API server confirms them. The draft has charged the pods already.

    where, gpus: the node and the mask of planned GPUs of each member."""
    by_name, now, matched = state.nodes, state.now, False
    fresh = Work(now)
    state.pending.step()
    for pod, name, mask in zip(members, where, gpus, strict=True):
        spec = pod.spec
        by_name[name].pods[pod.seen.uid] = pod
        pod.node, pod.gpus, pod.charged_spec = name, mask, spec
        pod.life = transition(pod.life, PLACED)
        pod.work = fresh if pod.work is NO_WORK else pod.work._replace(since=now)
        if mask or spec.has_nics:
            state.nodes_to_notify.add(name)
        matched |= bool(spec.matched)
    if matched:
        state.pending.capacity_freed("pod that affinity matches placed")
    assign_nics(state, *members)
    gang.counts.assign(members)
    state.pending.changed(gang)


# --- gangs ---------------------------------------------------------------------


def update_group(state: ClusterState, fact: facts.GangSeen) -> None:
    if fact.native_version and state.owners.composites.update(fact):
        return
    place = (fact.namespace, fact.name)
    members = gang_members.of_object(state, *place) if fact.declared else []
    if fact.each_replica:
        gang_members.drop_object(state, *place)
        state.owners.replicated.objects[place] = fact
        gang_members.update_replicas(state, *place)
    else:
        gang_members.drop_replicated(state, *place)
        gang_members.set_object(state, fact)
    if fact.declared:
        for made in state.owners.declare(*place, members, joined=not fact.each_replica):
            update_pod(state, made)


def settle_composites(state: ClusterState) -> None:
    """Puts the pods of PodGroups below CompositePodGroups that changed in the gangs that these are now."""
    gangs, moved = state.owners.composites.settle()
    for place, gang in gangs:
        if gang is not None:
            gang_members.set_object(state, gang)
        else:
            gang_members.drop_object(state, *place)
    for (namespace, podgroup), before in moved:
        old = state.gangs.get((namespace, before, True))
        for pod in list(old.members.values()) if old is not None else ():
            if native_podgroup.gang_name(pod.seen.podgroup) == podgroup:
                update_pod(state, pod.seen)

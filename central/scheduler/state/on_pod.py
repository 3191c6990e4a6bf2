"""Handlers of facts about pods, and of the outcomes of bindings and evictions."""

from central.model.facts import BindFailed, EvictDone, PodSeen, PodSpec
from central.scheduler.inventory.pods import (
    BIND_FAILED,
    DEVICES_UNKNOWN,
    EVICTION_AGREED,
    EVICTION_ENDED,
    SEEN_BOUND,
    EvictionBackoff,
    Pod,
)
from central.scheduler.state import on_gang, on_storage, residency
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import key_of
from protos.names import GPU, GPU_SHARE

# No eviction of a pod is asked for again before this time after a refusal; each refusal doubles it.
EVICTION_BACKOFF_S = 60.0
EVICTION_BACKOFF_MAX_S = 3600.0


def update_pod(state: ClusterState, fact: PodSeen) -> None:
    name = (fact.namespace, fact.name)
    other = state.uids.get(name)
    if other is not None and other != fact.uid:
        delete_pod(state, other)  # deleted and created again with the same name
    state.uids[name] = fact.uid
    state.any_movable |= fact.movable
    pod = state.pods.get(fact.uid)
    stale: PodSpec | None = None
    if pod is None:
        pod = state.pods[fact.uid] = Pod(fact, fact.spec)
        state.snapshot.mix.observe(fact.spec)
        on_storage.classify(state, pod, None)
        on_gang.join(state, pod, first_sight=True)
    elif pod.seen == fact:
        return  # its status changed in fields that the scheduler does not read
    else:
        rejoin = key_of(fact) != key_of(pod.seen)
        if rejoin:
            on_gang.leave(state, pod)
        before, pod.seen = pod.seen, fact
        stale = before.spec
        on_storage.classify(state, pod, before)
        if rejoin:
            on_gang.join(state, pod, first_sight=False)
    if fact.phase == "Running" and pod.since is None:
        pod.since = state.now
    if fact.node:
        pod.advance(SEEN_BOUND)
    state.observer.pod_seen(fact, evicting=pod.evicting)
    # A pod is never unbound: a fact without a node is older than the binding.
    moved = bool(pod.node and fact.node and fact.node != pod.node)  # another scheduler bound it
    devices_lost = moved or (stale is not None and _devices(stale) != _devices(fact.spec))
    residency.move_pod(state, pod, fact.node or pod.node, 0 if devices_lost else pod.gpus)
    if devices_lost and pod.node:
        pod.advance(DEVICES_UNKNOWN)
        residency.reconcile_gpus(state, state.nodes[pod.node])
    if stale is not None and stale != fact.spec:
        state.podclasses.remove_spec(stale)


def _devices(spec: PodSpec) -> tuple[int, int]:
    """GPUs and shares that the spec requests. Other numbers void the planned and observed devices."""
    return spec.request(GPU), spec.request(GPU_SHARE)


def delete_pod(state: ClusterState, uid: str) -> None:
    state.owners.forget_pod(uid)
    pod = state.pods.pop(uid, None)
    if pod is None:
        return
    state.observer.pod_gone(pod.seen, evicting=pod.evicting)
    name = (pod.seen.namespace, pod.seen.name)
    if pod.node:
        node = residency.node_of(state, pod.node)
        node.forget_pod(name)  # a later pod of this name has other devices
    residency.move_pod(state, pod, "")
    state.podclasses.remove_spec(pod.seen.spec)
    on_storage.on_unassigned(state, pod)
    on_storage.update_index(state, None, pod.seen)
    on_gang.leave(state, pod)
    if state.uids.get(name) == uid:
        del state.uids[name]


def bind_failed(state: ClusterState, fact: BindFailed) -> None:
    pod = state.pods.get(fact.pod)
    if pod is None or not pod.assumed or pod.node != fact.node:
        return  # the pod is gone, or the watch has shown its node since
    pod.advance(BIND_FAILED, fact.why if fact.final else "")
    residency.move_pod(state, pod, "")
    on_storage.on_unassigned(state, pod)
    gang = state.gang_of(pod)
    if gang is not None:
        gang.attempt.bind_failures += 1


def evict_done(state: ClusterState, fact: EvictDone) -> None:
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
    not_before = state.now + min(EVICTION_BACKOFF_S * 2**refusals, EVICTION_BACKOFF_MAX_S)
    pod.evict_backoff = EvictionBackoff(min(refusals + 1, 10), not_before)
    state.pending.preemption_retry_at.add(not_before)
    on_gang.member_changed(state, pod)

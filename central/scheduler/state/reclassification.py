"""The classes of pods as their rules, labels, namespaces and volumes change. A placed pod keeps its node, and is
counted there by its new class."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from central.model.device_claims import AllocatedDevice, DeviceClaimSeen, DeviceFact, DeviceNeeds
from central.model.facts import DeviceClassSeen, NamespaceGone, NamespaceSeen, PodSeen
from central.model.volumes import AttachLimits, ClaimSeen, StorageFact, Volumes, VolumeSeen
from central.scheduler.device_claims import pod_device_claims
from central.scheduler.device_claims.device_allocation import PodDevices
from central.scheduler.inventory.pods import Pod
from central.scheduler.state import gang_members
from central.scheduler.state.cluster_state import ClusterState


def classify(state: ClusterState, pod: Pod, before: PodSeen | None) -> None:
    """Sets the pod's class, and updates the class of every pod that its affinity rules match.

    before: the pod as last seen; None for a new pod."""
    spec = pod.seen.spec
    if before is None or before.spec != spec:
        reclassify_each(state, state.podclasses.add_rules(pod.seen))
    elif pod.seen.node and not before.node and not state.podclasses.tracks(pod.seen):
        admit_rules(state, pod)
    pod.spec = state.podclasses.class_of(pod.seen)
    index_pod(state, pod.seen, before)


def drop_rules(state: ClusterState, seen: PodSeen) -> None:
    """The pod has its rules no more, which may leave place for those of others."""
    state.podclasses.remove_rules(seen)
    if seen.spec.rules is None:
        return
    for uid in state.podclasses.refused(seen.namespace):
        if uid in state.pods and not admit_rules(state, state.pods[uid]):
            break


def admit_rules(state: ClusterState, pod: Pod) -> bool:
    matching = state.podclasses.admit(pod.seen)
    if matching is not None:
        reclassify_each(state, (pod.seen.uid, *matching))
    return matching is not None


def index_pod(state: ClusterState, seen: PodSeen | None, before: PodSeen | None) -> None:
    reclassify_each(state, state.podclasses.update_index(seen, before))


def reclassify_each(state: ClusterState, uids: Iterable[str]) -> None:
    """Reclassifies the pods that are known."""
    for uid in uids:
        if uid in state.pods:
            reclassify(state, state.pods[uid])


def reclassify(state: ClusterState, pod: Pod) -> None:
    """Gives the pod its present class. A placed pod keeps its node and is counted there again."""
    pod_class = state.podclasses.class_of(pod.seen)
    if pod_class == pod.spec:
        return
    pod.spec = pod_class
    if pod.charged_spec is not None:
        row = state.snapshot.columns.row[pod.node]
        state.snapshot.give(row, pod.charged_spec)
        state.snapshot.take(row, pod_class)
        pod.charged_spec = pod_class
    gang_members.member_changed(state, pod)


def namespace_changed(state: ClusterState, fact: NamespaceSeen | NamespaceGone) -> None:
    labels = dict(fact.labels) if isinstance(fact, NamespaceSeen) else None
    if state.podclasses.put_namespace(fact.name, labels):
        reclassify_each(state, state.podclasses.pods_of(fact.name))


def storage_changed(state: ClusterState, fact: StorageFact) -> None:
    reclassify_each(state, state.podclasses.storage.apply(fact))
    if isinstance(fact, VolumeSeen) and fact.free:
        state.pending.capacity_freed("volume available")
    if isinstance(fact, AttachLimits):
        state.snapshot.pod_counts.put_limits(fact.node, dict(fact.limits))
        state.pending.capacity_freed("volume attach limit changed")


def claim_set_aside(state: ClusterState, fact: ClaimSeen) -> None:
    """The reasons of the pods that name it change."""
    reclassify_each(state, state.podclasses.storage.users(f"{fact.namespace}/{fact.name}"))


def devices_changed(state: ClusterState, fact: DeviceFact | DeviceClassSeen) -> None:
    claims = state.podclasses.device_claims
    if isinstance(fact, DeviceClassSeen):
        changed = claims.apply_class(fact)
    else:
        changed = claims.apply(fact)
    for uid in changed:
        if (pod := state.pods.get(uid)) is not None:
            index_pod(state, pod.seen, pod.seen)
            reclassify(state, pod)
    if isinstance(fact, DeviceClassSeen):
        offers_changed(state)
    if not isinstance(fact, DeviceClaimSeen) or fact.allocated is None:
        state.pending.capacity_freed("devices of claims changed")


def offers_changed(state: ClusterState) -> None:
    """Classifies pods again whose resources are offered in another way now, by device plugins or by claims."""
    extended = state.podclasses.device_claims.allocation.extended
    for pod in list(state.pods.values()) if extended.take_changed() else ():
        if extended.served(pod.seen.spec) or pod.spec.charges:
            index_pod(state, pod.seen, pod.seen)
            reclassify(state, pod)


def on_assigned(state: ClusterState, pods: Sequence[Pod]) -> None:
    """Plans for the claims of these pods the volumes and devices that their placement took."""
    pods = [pod for pod in pods if pod.spec.devices is not None or pod.spec.volumes is not None]
    if not pods:
        return
    _plan_devices(state, [pod for pod in pods if pod.spec.devices is not None])
    snapshot, storage = state.snapshot, state.podclasses.storage
    claimants: dict[tuple[int, Volumes], list[Pod]] = {}
    for pod in pods:
        volumes = pod.spec.volumes
        if volumes is not None and (volumes.wants or volumes.shared):
            claimants.setdefault((snapshot.columns.row[pod.node], volumes), []).append(pod)
    shared: dict[str, str] = {}
    for (row, volumes), there in claimants.items():
        lots, common = snapshot.pod_counts.volumes.confirm(row, volumes, len(there))
        shared |= common
        wants = [want for want, count in volumes.wants for _ in range(count)]
        for pod, lot in zip(there, lots, strict=False):
            storage.plan(pod.seen, zip(wants, lot, strict=True), shared)
    planned = [pod.seen.uid for there in claimants.values() for pod in there]
    _reclassify_assigned(state, planned, (storage.users(claim) for claim in shared))


def _plan_devices(state: ClusterState, pods: Sequence[Pod]) -> None:
    snapshot, claims = state.snapshot, state.podclasses.device_claims
    there: dict[tuple[int, DeviceNeeds], list[Pod]] = {}
    for pod in pods:
        if (needs := pod.spec.devices) is not None:
            there.setdefault((snapshot.columns.row[pod.node], needs), []).append(pod)
    shared: dict[str, tuple[AllocatedDevice, ...]] = {}
    charged: set[str] = set()
    for (row, needs), alike in there.items():
        lots: list[PodDevices] = [()] * len(alike)
        if needs.asks:
            lots, common = claims.allocation.confirm(row, needs, len(alike))
            shared |= common
        for pod, lot in zip(alike, lots, strict=False):
            charged |= claims.plan(pod.seen, pod_device_claims.lots(needs, lot), shared, row)
    users = (claims.users(pod_device_claims.key_of(claim)) for claim in shared)
    planned = [pod.seen.uid for pod in pods]
    _reclassify_assigned(state, planned, [sorted(charged.union(*users))])


def _reclassify_assigned(
    state: ClusterState, planned: Iterable[str], sharing: Iterable[Iterable[str]]
) -> None:
    """Reclassifies pods that were placed, and those that share their claims. This charges and refunds rows, but frees
    no capacity."""
    freed = state.snapshot.freed
    reclassify_each(state, chain(planned, *sharing))
    state.snapshot.freed = freed


def on_unassigned(state: ClusterState, pod: Pod) -> None:
    """The pod has no node any more: the volumes and devices planned for its claims are available again."""
    claims = state.podclasses.device_claims
    if pod.seen.device_claims or claims.used or claims.served:
        reclassify_each(state, (pod.seen.uid, *claims.unplan(pod.seen)))
    if pod.seen.claims:
        reclassify_each(state, state.podclasses.storage.unplan(pod.seen))


def on_claims_changed(state: ClusterState, seen: PodSeen, before: PodSeen) -> None:
    """The volumes planned for claims that the pod no longer names are available again. The API server lets no
    pod change its claims, but what it sends after it was restored may."""
    if seen.claims == before.claims:
        return
    dropped = tuple(claim for claim in before.claims if claim not in seen.claims)
    if dropped:
        state.pending.capacity_freed("volume available")
    reclassify_each(state, state.podclasses.storage.unplan(replace(before, claims=dropped)))

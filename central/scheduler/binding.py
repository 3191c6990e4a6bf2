"""Turns assignments into bindings: which pod of a gang runs on which node with which GPUs.

Pods in rank order take the assignments in order, so that neighbouring ranks run on neighbouring nodes."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from typing import cast

from central.model.decisions import Bind
from central.model.facts import PodSpec
from central.scheduler.inventory.domains import Annotations
from central.scheduler.inventory.pods import Pod
from central.scheduler.snapshot.draft import Assignment, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state import handlers, reclassification
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from protos.closest import closest

OwnSpecs = Sequence[tuple[PodSpec, PodSpec]]


def binds(
    state: ClusterState,
    gang: Gang,
    pods: Sequence[Pod],
    assignments: Sequence[Assignment],
    own_specs: OwnSpecs = (),
) -> list[Bind]:
    """Assumes the pods on their nodes and returns the Bind decisions. pods: in rank order. own_specs: as in
    PlacementRequest."""
    nodes: list[str] = []
    gpus: list[int] = []
    domains: list[Annotations] = []
    names, annotations = state.snapshot.columns.names, state.snapshot.columns.domains.annotations
    for assignment in assignments:
        row, _, count, mask = assignment
        if count == 1:
            nodes.append(names[row])
            gpus.append(mask)
            domains.append(annotations(row))
        else:
            nodes += [names[row]] * count
            gpus += _gpus_by_pod(state.snapshot, assignment)
            domains += [annotations(row)] * count
    ordered = _in_order_of(pods, assignments, own_specs)
    handlers.assume(state, gang, ordered, nodes, gpus)
    reclassification.on_assigned(state, ordered)
    seen = [pod.seen for pod in ordered]
    unbound = state.podclasses.storage.unbound
    claims = [unbound(pod) if pod.claims else () for pod in seen]
    asked = state.podclasses.device_claims
    some = asked.used or asked.served
    device_claims = [
        asked.allocations(pod, state.owners.composites.podgroup_of(pod) or gang.object)
        if some
        else ()
        for pod in seen
    ]
    pod_names = map(_uid, seen), map(_namespace, seen), map(_name, seen)
    columns = (*pod_names, nodes, gpus, claims, domains, device_claims)
    return list(map(_bind, zip(*columns, strict=True)))


def reduce(
    draft: Draft, pods: Sequence[Pod], kept: Sequence[Pod], own_specs: OwnSpecs = ()
) -> list[Pod]:
    """Gives back what the draft took for other pods than these. Returns them in the order of what is left.
    pods: of all assignments, in rank order."""
    wanted = {id(pod) for pod in kept}
    ordered = iter(_in_order_of(pods, draft.assignments, own_specs))
    part, left = list[Pod](), list[Assignment]()
    for assignment in draft.assignments:
        one = assignment.pods == 1
        masks = [assignment.gpus] if one else _gpus_by_pod(draft.snapshot, assignment)
        for mask, pod in zip(masks, ordered):  # noqa: B905  ordered goes on
            if id(pod) in wanted:
                part.append(pod)
                left.append(assignment._replace(pods=1, gpus=mask))
    draft.undo()
    draft.retake(left)
    return part


def _in_order_of(
    pods: Sequence[Pod], assignments: Sequence[Assignment], own_specs: OwnSpecs
) -> Sequence[Pod]:
    """The pods in the order of the assignments, whose specs they match."""
    if len(pods) == 1:
        return pods
    by_spec: dict[PodSpec, list[Pod]] = {}
    for spec, together in groupby(pods, key=_spec):
        by_spec.setdefault(spec, []).extend(together)
    if len(by_spec) == 1:
        return pods
    ranks = {spec: iter(kind) for spec, kind in by_spec.items()}
    for spec, own in own_specs:
        ranks[spec] = ranks[own]
    return [
        pod for assignment in assignments for pod in islice(ranks[assignment.spec], assignment.pods)
    ]


def _gpus_by_pod(snapshot: Snapshot, assignment: Assignment) -> list[int]:
    """The GPU mask of each pod of an assignment, close GPUs together."""
    shape = snapshot.columns.gpus.shape[assignment.row]
    if shape is None or not assignment.gpus:
        return [0] * assignment.pods
    if snapshot.view(assignment.spec).share:
        return [assignment.gpus] * assignment.pods
    left, shares = assignment.gpus, []
    for _ in range(assignment.pods):
        share = closest(shape, left, assignment.gpus.bit_count() // assignment.pods)
        left &= ~share
        shares.append(share)
    return shares


_spec, _uid = attrgetter("spec"), attrgetter("uid")
_namespace, _name = attrgetter("namespace"), attrgetter("name")
# Bind(*each), in a third of its time: a cycle can have thousands.
_bind = cast("Callable[[tuple[object, ...]], Bind]", partial(tuple.__new__, Bind))

"""Prepares resource claims on this node. The kubelet names a claim; its devices come with the scheduler's plans,
because the agent has no rights on the API server.

Design: docs/design/kubelet.md
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import grpc

from agent.claims.claim_records import KIND, ClaimRecords
from agent.kubelet.pod_resources import ANSWER_S, ObservedGrants
from agent.kubelet.registration import GRANTS_S
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.resources.device_resource import DeviceResource
from protos.claim_devices import device_name, is_safe, uuid_of
from protos.printing import brief
from protos.stubs import dra_pb2 as pb
from protos.topology import ClaimPlan

log = logging.getLogger(__name__)

PLAN_S = 8.0  # for the plans of claims; the kubelet asks again later
SENTENCE = 700  # characters of an error, which becomes an event of the pod
CLAIMS_MOST = 256  # of one call; a pod has 64 at most
DEVICES_MOST = 32  # of a claim, as in Kubernetes


class _Group(NamedTuple):
    """The devices of a claim that a container gets together: those of one request and kind."""

    request: str
    resource: str  # that the device plugin would give them as
    uuids: list[str]


class ClaimDriver:
    def __init__(
        self,
        node: AgentNode,
        grants: ObservedGrants,
        records: ClaimRecords,
        resource: Callable[[str], DeviceResource],
        plan_s: float = PLAN_S,
    ) -> None:
        """resource: returns what gives containers the devices of a resource name."""
        self._node, self._grants, self._records = node, grants, records
        self._resource, self._plan_s = resource, plan_s
        self._lock = threading.Lock()

    def restore(self) -> None:
        """Reads the claims that an earlier agent prepared."""
        self._node.set_prepared(*self._records.read())

    def begin(self) -> None:
        """Learns which devices are in use, before the first claim is prepared."""
        self.restore()
        self._grants.refresh(GRANTS_S)

    def prepare(
        self, request: pb.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        _check_count(request.claims, context)
        uids = {claim.uid for claim in request.claims}
        self._node.wait(lambda state: uids <= _plans(state).keys(), self._plan_s)
        answer = pb.NodePrepareResourcesResponse()
        for claim in request.claims:
            try:
                with self._lock:
                    answer.claims[claim.uid].devices.extend(self._prepare(claim))
            except (OSError, ValueError) as error:
                answer.claims[claim.uid].error = _refused("prepare", claim, error)
        return answer

    def unprepare(
        self, request: pb.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodeUnprepareResourcesResponse:
        _check_count(request.claims, context)
        answer = pb.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            answer.claims[claim.uid].error = ""
            try:
                if is_safe(claim.uid):  # else it was never prepared
                    with self._lock:
                        self._records.remove(claim.uid)
                        self._node.forget_claim(claim.uid)
            except OSError as error:
                answer.claims[claim.uid].error = _refused("unprepare", claim, error)
        return answer

    def _prepare(self, claim: pb.Claim) -> Iterator[pb.Device]:
        """Raises ValueError with a sentence, or OSError."""
        plan = self._plan(claim)
        prepared = plan in self._node.state.prepared
        if not prepared:
            self._take(plan)
        try:
            state = self._node.state
            groups = {f"{plan.uid}-{i}": each for i, each in enumerate(_groups(plan, state))}
            parts = {
                name: self._resource(group.resource).response(group.uuids, state)
                for name, group in groups.items()
            }
            self._records.write(plan, parts)
        except (OSError, ValueError):
            if not prepared:
                self._node.forget_claim(plan.uid)
            raise
        devices = ", ".join(each.device for each in plan.devices)
        log.info("prepared claim %s/%s: %s", plan.namespace, plan.name, devices)
        for name, group in groups.items():
            # A container gets all of them with the first.
            cdi = [f"{KIND}={name}", *parts[name].cdi_devices]
            for uuid in group.uuids:
                yield pb.Device(
                    request_names=[group.request],
                    pool_name=self._node.name,
                    device_name=device_name(uuid),
                    cdi_device_ids=cdi,
                )
                cdi = []

    def _plan(self, claim: pb.Claim) -> ClaimPlan:
        """Raises ValueError."""
        plan = _plans(self._node.state).get(claim.uid)
        if plan is None:
            why = (
                "the scheduler has not sent its devices on this node; is the claim allocated here?"
            )
            raise ValueError(why)
        if (plan.namespace, plan.name) != (claim.namespace, claim.name):
            raise ValueError(f"its uid is that of claim {plan.namespace}/{plan.name}")
        if not all(map(is_safe, (plan.uid, plan.namespace, plan.name))):
            raise ValueError("its uid or a name is not valid in Kubernetes")
        if len(plan.devices) > DEVICES_MOST:
            raise ValueError(f"{len(plan.devices)} devices; at most {DEVICES_MOST} are accepted")
        return plan

    def _take(self, plan: ClaimPlan) -> None:
        """Enters the claim into the node's state. Raises ValueError."""
        try:
            self._node.record_claim(plan)
        except ValueError:
            self._grants.refresh(ANSWER_S)  # the pod that had its devices may have ended
            self._node.record_claim(plan)


def _plans(state: NodeState) -> dict[str, ClaimPlan]:
    """The claims by uid; a planned one before the prepared one, which may be of an earlier allocation."""
    return {claim.uid: claim for claim in (*state.prepared, *state.claims)}


def _groups(plan: ClaimPlan, state: NodeState) -> Iterable[_Group]:
    """Raises ValueError if a device is not on this node."""
    devices = state.by_uuid()
    groups: dict[tuple[str, str], _Group] = {}
    for each in plan.devices:
        uuid = uuid_of(each.device)
        if uuid not in devices:
            raise ValueError(f"this node has no device {each.device}")
        key = each.request, devices[uuid][0]
        groups.setdefault(key, _Group(*key, [])).uuids.append(uuid)
    return groups.values()


def _refused(what: str, claim: pb.Claim, error: Exception) -> str:
    why = brief(f"cannot {what} claim {claim.namespace}/{claim.name}: {error}", SENTENCE)
    log.warning(why)
    return why


def _check_count(claims: Sequence[pb.Claim], context: grpc.ServicerContext) -> None:
    if len(claims) > CLAIMS_MOST:
        why = f"{len(claims)} claims; a call may have {CLAIMS_MOST}"
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)

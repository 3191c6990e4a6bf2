"""The claim for a pod's extended resources, as kube-scheduler makes it, and what the kubelet is told of it.

Each container that stays has a request of its own, so that it gets its devices and no others. An init container uses
those of the containers that start after it; the most that one needs beyond them is a request of its own.

Design: docs/design/device-claims.md
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from central.kube.decode.quantities import parse_exact
from central.kube.resource_paths import BY_KIND
from central.model.decisions import Bind
from central.model.device_claims import AllocatedDevice, ClaimAllocation
from central.model.json_types import Json

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
_POD_NAME, _UID = 200, 8  # characters in the claim's name, which may have 253


class _ContainerRequest(NamedTuple):
    name: str
    devices: int


class _ResourceUses(NamedTuple):
    """One resource: its requests, and the containers that use each of them."""

    requests: list[_ContainerRequest]
    uses: list[tuple[str, str]]  # names of containers and requests


def name_of(bind: Bind) -> str:
    """The name is the same at each attempt, so that no second claim is made."""
    return f"{bind.name[:_POD_NAME].rstrip('-.')}-extended-resources-{bind.pod[:_UID]}"


def claim_of(
    bind: Bind, planned: ClaimAllocation, pod: Json, finalizer: str
) -> tuple[Json, ClaimAllocation, Json]:
    """Returns the claim to make, its allocation by request, and the status of the pod that names it. Raises ValueError
    if the pod requests other amounts than those that were planned."""
    devices: list[AllocatedDevice] = []
    requests: list[Json] = []
    uses: list[Json] = []
    name = name_of(bind)
    for resource, device_class in planned.served:
        given = [each for each in planned.devices if each.request == resource]
        found = _resource(pod.get("spec") or {}, resource)
        if sum(each.devices for each in found.requests) != len(given):
            raise ValueError(f"the pod requests another amount of {resource}")
        for request, count in found.requests:
            exactly = {
                "deviceClassName": device_class,
                "allocationMode": "ExactCount",
                "count": count,
            }
            requests.append({"name": request, "exactly": exactly})
            devices += [each._replace(request=request) for each in given[:count]]
            del given[:count]
        uses += (
            {"containerName": container, "resourceName": resource, "requestName": request}
            for container, request in found.uses
        )
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": bind.name,
        "uid": bind.pod,
        "controller": True,
    }
    meta = {
        "name": name,
        "namespace": bind.namespace,
        "annotations": {ANNOTATION: "true"},
        "ownerReferences": [owner],
        "finalizers": [finalizer],
    }
    spec = {"devices": {"requests": sorted(requests, key=lambda each: str(each["name"]))}}
    claim = BY_KIND["ResourceClaim"].body(metadata=meta, spec=spec)
    status = {"resourceClaimName": name, "requestMappings": uses}
    return claim, planned._replace(claim=name, devices=tuple(devices)), status


def is_of(claim: Json, bind: Bind) -> bool:
    """Returns whether the claim was made for the pod."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(each.get("uid") == bind.pod and each.get("controller") for each in owners)


def _resource(spec: Json, resource: str) -> _ResourceUses:
    asks = list(_asking(spec, resource))
    lasting = [each for each in asks if not each.ends]
    requests = [_ContainerRequest(each.request, each.amount) for each in lasting]
    uses = [(each.container, each.request) for each in lasting]
    beyond: list[tuple[int, _AskingContainer]] = []
    for ending in (each for each in asks if each.ends):
        left = ending.amount
        for later in (each for each in lasting if each.at > ending.at):
            if left > 0:
                uses.append((ending.container, later.request))
                left -= later.amount
        if left > 0:
            beyond.append((left, ending))
    if beyond:
        most, largest = max(beyond, key=lambda each: (each[0], -each[1].at))
        requests.append(_ContainerRequest(largest.request, most))
        uses += ((each.container, largest.request) for _, each in beyond)
    return _ResourceUses(requests, uses)


class _AskingContainer(NamedTuple):
    at: int  # among the containers, init containers first
    container: str
    request: str
    amount: int
    ends: bool  # before the next container starts


def _asking(spec: Json, resource: str) -> Iterator[_AskingContainer]:
    """The containers that request the resource."""
    initial: Sequence[Json] = spec.get("initContainers") or ()
    for at, container in enumerate((*initial, *(spec.get("containers") or ()))):
        requests = (container.get("resources") or {}).get("requests") or {}
        if amount := int(parse_exact(requests.get(resource, "0"))):
            ends = at < len(initial) and container.get("restartPolicy") != "Always"
            request = f"container-{at}-request-{sorted(requests).index(resource)}"
            yield _AskingContainer(at, container["name"], request, amount, ends)

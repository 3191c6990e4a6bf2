"""Requests of a pod on its node, as kube-scheduler counts them: containers, sidecars and init containers, pod-level
resources, overhead, and the larger of old and new amounts while a resize in place is under way.

The formulas are those of PodRequests in k8s.io/component-helpers/resource (Kubernetes 1.36). Raises FieldError.
"""

from collections.abc import Callable, Iterator

from central.kube.decode.fields import FieldError, parsed, shown
from central.kube.decode.quantities import parse_quantity
from central.model import limits
from central.model.json_types import Json
from protos import names
from protos.nic_ids import are_nics
from protos.slicing import is_slice

Amounts = dict[str, int]
_NOTHING: Json = {}


def requests_of(spec: Json, status: Json = _NOTHING) -> Amounts:
    """Returns the amounts by resource, with the pod itself as pods=1. Amounts are at most limits.POD_AMOUNT."""
    total = _of_containers(spec, status)
    overhead = resource_amounts(spec.get("overhead"), "spec.overhead")
    total |= _of_pod(spec, status, total, overhead)
    _add(total, overhead)
    total["pods"] = 1
    return total


def container_requests(container: Json, field: str) -> Amounts:
    """A container's requests; its limits where requests are missing, as the API server defaults them."""
    resources = container.get("resources") or _NOTHING
    found: Amounts = {}
    for part in ("limits", "requests"):
        found |= resource_amounts(resources.get(part), f"{field}.resources.{part}")
    return found


def resource_amounts(quantities: Json | None, field: str) -> Amounts:
    """Each amount is at most 2^63 - 1."""
    if quantities and not isinstance(quantities, dict):
        raise FieldError(f"{field}: {shown(quantities)} is not an object")
    return {
        resource: parsed(f"{field}.{resource}", parse_quantity, resource, quantity)
        for resource, quantity in (quantities or _NOTHING).items()
    }


def bounded(resource: str, amount: int) -> int:
    """The amount that sums count: what exceeds it fits on no node either."""
    if resource == "pods":
        return min(amount, limits.REPLICAS)
    devices = resource in (names.GPU, names.GPU_SHARE) or are_nics(resource) or is_slice(resource)
    return min(amount, limits.DEVICES if devices else limits.POD_AMOUNT)


def is_sidecar(container: Json) -> bool:
    return bool(container.get("restartPolicy") == "Always")


def resized_containers(spec: Json, status: Json) -> list[Json]:
    """The containers' statuses that differ from the spec: the containers are being resized, or the node
    refused the new size. Empty for almost all pods."""
    asked = {
        container.get("name"): (container.get("resources") or _NOTHING).get("requests") or _NOTHING
        for field in ("initContainers", "containers")
        for container in spec.get(field) or ()
    }
    return [
        each
        for field in ("initContainerStatuses", "containerStatuses")
        for each in status.get(field) or ()
        if any(part != asked.get(each.get("name")) for part in _reported(each) if part is not None)
    ]


def pod_status_content(spec: Json, status: Json) -> list[object]:
    """The parts of a status that requests_of() reads; empty for almost all pods."""
    content: list[object] = [
        [each.get("name"), *_reported(each)] for each in resized_containers(spec, status)
    ]
    if spec.get("resources"):
        content += (status.get("resources"), status.get("allocatedResources"))
    return [*content, _infeasible(status)] if any(content) else content


def _reported(container: Json) -> tuple[Json | None, Json | None]:
    """Returns the amounts that the kubelet has granted to a container, and those that the container has at present.
    Where one of both is not reported, it is the other."""
    granted = container.get("allocatedResources")
    present = (container.get("resources") or _NOTHING).get("requests") or granted
    return present if granted is None else granted, present


def _of_containers(spec: Json, status: Json) -> Amounts:
    resized = {each.get("name"): _reported(each) for each in resized_containers(spec, status)}
    if not resized:
        return _aggregate(spec, container_requests)
    infeasible = _infeasible(status)

    def at(place: int) -> Callable[[Json, str], Amounts]:
        def amounts(container: Json, field: str) -> Amounts:
            reported = resized.get(container["name"], (None, None))[place]
            if reported is None:
                return container_requests(container, field)
            return resource_amounts(reported, f"status of {field}")

        return amounts

    found: Amounts = {} if infeasible else _aggregate(spec, container_requests)
    for place in (0, 1):
        _raise_to(found, _aggregate(spec, at(place)))
    return found


def _infeasible(status: Json) -> bool:
    """Returns whether the node can never grant the resize that the spec asks for."""
    if status.get("resize") == "Infeasible":  # until Kubernetes 1.32
        return True
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions") or ()
    )


def _aggregate(spec: Json, amounts: Callable[[Json, str], Amounts]) -> Amounts:
    """The sum over containers and sidecars, or the most that an init container needs together with the
    sidecars before it, whichever is more."""
    sidecars: Amounts = {}
    most: Amounts = {}
    for index, container in enumerate(spec.get("initContainers") or ()):
        needs = amounts(container, f"spec.initContainers[{index}]")
        if is_sidecar(container):
            _add(sidecars, needs)
            _raise_to(most, sidecars)
            continue
        together = dict(sidecars)
        _add(together, needs)
        _raise_to(most, together)
    total = dict(sidecars)
    for index, container in enumerate(spec.get("containers") or ()):
        _add(total, amounts(container, f"spec.containers[{index}]"))
    _raise_to(total, most)
    return total


def _of_pod(spec: Json, status: Json, containers: Amounts, overhead: Amounts) -> Amounts:
    """The resources that the pod requests as a whole (spec.resources), which replace the sum of its
    containers. Of them, the API server sets missing requests as here: from containers, else from limits."""
    resources = spec.get("resources")
    if not resources:
        return {}
    asked = resource_amounts(resources.get("requests"), "spec.resources.requests")
    most = resource_amounts(resources.get("limits"), "spec.resources.limits")
    asked = {name: containers.get(name) or amount for name, amount in most.items()} | asked
    found = {} if _infeasible(status) else dict(_pod_level(asked))
    present = (status.get("resources") or _NOTHING).get("requests")
    for reported in (present, status.get("allocatedResources")):
        amounts = resource_amounts(reported, "status.resources")
        left = {name: amount - overhead.get(name, 0) for name, amount in amounts.items()}
        _raise_to(found, {name: amount for name, amount in _pod_level(left) if name in asked})
    return found or dict(_pod_level(asked))


def _pod_level(amounts: Amounts) -> Iterator[tuple[str, int]]:
    """Yields the amounts that a pod may request as a whole."""
    for name, amount in amounts.items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            yield name, bounded(name, max(0, amount))


def _add(total: Amounts, more: Amounts) -> None:
    for resource, amount in more.items():
        total[resource] = bounded(resource, total.get(resource, 0) + amount)


def _raise_to(total: Amounts, least: Amounts) -> None:
    for resource, amount in least.items():
        if amount > total.get(resource, 0):
            total[resource] = bounded(resource, amount)

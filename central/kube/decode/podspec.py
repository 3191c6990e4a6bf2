"""The part of a pod's spec that placement depends on. Raises FieldError.

What this version can't honour is PodSpec.unsupported. Such a pod stays pending with that sentence, rather
than being placed against its spec.

Design: docs/design/0046-no-dra.md
"""

from central.kube.decode.fields import FieldError
from central.kube.decode.quantities import InvalidQuantity, parse_quantity
from central.model.facts import PodSpec, Toleration
from central.model.json_types import Json
from central.model.pod_rules import NodeTerms, Requirement, Rules
from protos import names
from protos.gpu_sharing import WHOLE
from protos.slicing import is_slice

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


def decode_pod_spec(spec: Json, ours: bool, rules: Rules | None = None) -> PodSpec:
    """Of pods that another scheduler places, only resources and anti-affinity matter."""
    requests = _requests(spec)
    gpus = _device_containers(spec, names.GPU)
    rdma = _device_containers(spec, names.RDMA)
    shares = _device_containers(spec, names.GPU_SHARE)
    if not ours:
        return PodSpec(
            requests=requests,
            gpu_containers=gpus,
            rdma_containers=rdma,
            share_containers=shares,
            rules=rules,
        )
    return PodSpec(
        requests=requests,
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        node_terms=_node_terms(spec),
        tolerations=_tolerations(spec),
        gpu_containers=gpus,
        rdma_containers=rdma,
        on_host=bool(rdma and spec.get("hostNetwork")),
        share_containers=shares,
        unsupported=_unsupported(spec)
        or _unshareable(dict(requests))
        or _mixed_gpu_resources(spec),
        rules=rules,
    )


def _is_sidecar(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def _container_requests(container: Json, field: str) -> dict[str, int]:
    """A container's requests; its limits where requests are missing, as the API server defaults them."""
    resources = container.get("resources") or {}
    found: dict[str, int] = {}
    for part in ("limits", "requests"):
        found |= resource_amounts(resources.get(part), f"{field}.resources.{part}")
    return found


def resource_amounts(quantities: Json | None, field: str) -> dict[str, int]:
    found = {}
    for resource, quantity in (quantities or {}).items():
        try:
            found[resource] = parse_quantity(resource, quantity)
        except InvalidQuantity as error:
            raise FieldError(f"{field}.{resource}: {error}") from None
    return found


def _requests(spec: Json) -> tuple[tuple[str, int], ...]:
    """The pod's effective requests: the sum over containers and sidecars, or the most that an init
    container needs together with the sidecars before it, whichever is more; and the overhead."""
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for index, container in enumerate(spec.get("initContainers") or ()):
        needs = _container_requests(container, f"spec.initContainers[{index}]")
        if _is_sidecar(container):
            _add(sidecars, needs)
            needs = {}
        _raise_to(most, {r: sidecars.get(r, 0) + needs.get(r, 0) for r in {*sidecars, *needs}})
    together = dict(sidecars)
    for index, container in enumerate(spec.get("containers") or ()):
        _add(together, _container_requests(container, f"spec.containers[{index}]"))
    _raise_to(together, most)
    _add(together, resource_amounts(spec.get("overhead"), "spec.overhead"))
    together["pods"] = 1
    return tuple(sorted((resource, amount) for resource, amount in together.items() if amount))


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _raise_to(total: dict[str, int], least: dict[str, int]) -> None:
    for resource, amount in least.items():
        if amount > total.get(resource, 0):
            total[resource] = amount


def _device_containers(spec: Json, resource: str) -> tuple[tuple[str, int], ...]:
    """The containers that hold such devices while the pod runs, in the order in which the kubelet
    allocates: sidecars first. They reuse the devices of init containers."""
    sidecars = [c for c in spec.get("initContainers") or () if _is_sidecar(c)]
    found = (
        (c, _container_requests(c, "spec").get(resource, 0))
        for c in (*sidecars, *spec["containers"])
    )
    return tuple((container["name"], count) for container, count in found if count)


def _node_terms(spec: Json) -> tuple[tuple[Requirement, ...], ...] | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else node_terms(required)


def node_terms(selector: Json) -> NodeTerms:
    terms = (_term(term) for term in selector.get("nodeSelectorTerms") or ())
    return tuple(term for term in terms if term)  # an empty term matches no node


def _term(term: Json) -> tuple[Requirement, ...]:
    return tuple(
        _requirement(expression, is_field)
        for part, is_field in (("matchExpressions", False), ("matchFields", True))
        for expression in term.get(part) or ()
    )


def _requirement(expression: Json, is_field: bool) -> Requirement:
    operator = expression.get("operator")
    if operator not in _OPERATORS:
        raise FieldError(f'spec.affinity.nodeAffinity: "{operator}" is not an operator')
    return Requirement(expression["key"], operator, tuple(expression.get("values") or ()), is_field)


def _tolerations(spec: Json) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(t.get("key") or "", operator, t.get("value") or "", t.get("effect") or "")
        for t in spec.get("tolerations") or ()
        if (operator := t.get("operator") or "Equal") in {"Equal", "Exists"}
    )


def _unshareable(requests: dict[str, int]) -> str:
    share = requests.get(names.GPU_SHARE, 0)
    if share > WHOLE:
        return (
            f"{names.GPU_SHARE}: {share} exceeds the {WHOLE} hundredths of one GPU; "
            f"request whole GPUs as {names.GPU}"
        )
    if share and requests.get(names.GPU, 0):
        return f"{names.GPU_SHARE} and {names.GPU} in one pod: whole GPUs or a share, not both"
    return ""


def _mixed_gpu_resources(spec: Json) -> str:
    """The kubelet merges the Allocate responses for a container, so of two GPU resources one is lost."""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            where = f"spec.{field}[{index}]"
            sorts = [
                each for each in sorted(_container_requests(container, where)) if _is_gpu(each)
            ]
            if len(sorts) > 1:
                return (
                    f"{where}.resources: {' and '.join(sorts)}: a container sees GPUs or MIG slices "
                    "of one profile, not both; use a container for each"
                )
    return ""


def _is_gpu(resource: str) -> bool:
    return resource in (names.GPU, names.GPU_SHARE) or is_slice(resource)


def _unsupported(spec: Json) -> str:
    if spec.get("resourceClaims"):
        return "spec.resourceClaims: dynamic resource allocation is not supported yet"
    return ""

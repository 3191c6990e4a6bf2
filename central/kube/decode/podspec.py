"""The part of a pod's spec that placement depends on. Raises FieldError.

What this version can't honour is PodSpec.unsupported. Such a pod stays pending with that sentence, rather
than being placed against its spec.

Design: docs/design/filters.md
"""

from central.kube.decode import fields
from central.kube.decode.effective_requests import (
    bounded,
    container_requests,
    is_sidecar,
    requests_of,
)
from central.kube.decode.fields import FieldError
from central.kube.decode.node_features import needed_features
from central.model import limits, wording
from central.model.facts import Amounts, PodSpec, Toleration
from central.model.json_types import Json
from central.model.pod_rules import NodeTerms, Requirement, Rules
from protos import names
from protos.gpu_sharing import WHOLE
from protos.nic_ids import is_rail
from protos.slicing import is_slice

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


def requests(spec: Json, status: Json) -> Amounts:
    """Returns the pod's requests on its node, sorted by name. If there are too many resources, Kubernetes' own are
    kept, and then the first."""
    return _kept(requests_of(spec, status))


def _kept(amounts: dict[str, int]) -> Amounts:
    found = [(name, amount) for name, amount in amounts.items() if amount]
    if len(found) > limits.RESOURCES:
        found = sorted(found, key=lambda pair: ("/" in pair[0], pair))[: limits.RESOURCES]
    return tuple(sorted(found))


def decode_pod_spec(
    spec: Json, ours: bool, rules: Rules | None = None, status: Json | None = None
) -> PodSpec:
    """Decodes a pod's spec. For pods that another scheduler places, only resources and anti-affinity matter."""
    amounts = requests_of(spec, status or {})
    asked = _kept(amounts)
    gpus = _device_containers(spec, names.GPU, asked)
    rdma = _device_containers(spec, names.RDMA)
    rails = _rail_containers(spec, asked)
    shares = _device_containers(spec, names.GPU_SHARE, asked)
    if not ours:
        return PodSpec(
            requests=asked,
            gpu_containers=gpus,
            rdma_containers=rdma,
            rail_containers=rails,
            share_containers=shares,
            rules=rules,
        )
    return PodSpec(
        requests=asked,
        node_selector=tuple(
            sorted(fields.labels(spec, "nodeSelector", "spec", limits.SELECTOR).items())
        ),
        node_terms=_node_terms(spec),
        tolerations=_tolerations(spec),
        gpu_containers=gpus,
        rdma_containers=rdma,
        rail_containers=rails,
        on_host=bool((rdma or rails) and spec.get("hostNetwork")),
        share_containers=shares,
        features=needed_features(spec),
        unsupported=_unsupported(spec, amounts)
        or _unshareable(dict(asked))
        or _mixed_gpu_resources(spec),
        rules=rules,
    )


def _device_containers(
    spec: Json, resource: str, asked: Amounts = ()
) -> tuple[tuple[str, int], ...]:
    """The containers that hold such devices while the pod runs, in the order in which the kubelet
    allocates: sidecars first. They reuse the devices of init containers. Of those that are asked, the
    others are for init containers only: REST_OF_POD."""
    sidecars = [c for c in spec.get("initContainers") or () if is_sidecar(c)]
    found = [
        (c["name"], bounded(resource, count))
        for c in (*sidecars, *spec["containers"])
        if (count := container_requests(c, "spec").get(resource, 0))
    ]
    rest = dict(asked).get(resource, 0) - sum(count for _, count in found)
    return (*found, (names.REST_OF_POD, rest)) if rest > 0 else tuple(found)


def _rail_containers(spec: Json, asked: Amounts) -> tuple[tuple[str, str], ...]:
    """Each container with each rail of which it holds a share."""
    return tuple(
        (container, resource)
        for resource, _ in asked
        if is_rail(resource)
        for container, _ in _device_containers(spec, resource)
    )


def _node_terms(spec: Json) -> tuple[tuple[Requirement, ...], ...] | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else node_terms(required)


def node_terms(selector: Json, field: str = "spec.affinity.nodeAffinity") -> NodeTerms:
    chosen = fields.entries(selector, "nodeSelectorTerms", field, limits.TERMS)
    terms = (_term(term, field) for term in chosen)
    return tuple(term for term in terms if term)  # an empty term matches no node


def _term(term: Json, field: str) -> tuple[Requirement, ...]:
    return tuple(
        _requirement(expression, is_field, field)
        for part, is_field in (("matchExpressions", False), ("matchFields", True))
        for expression in fields.entries(term, part, field, limits.EXPRESSIONS)
    )


def _requirement(expression: Json, is_field: bool, field: str) -> Requirement:
    operator = expression.get("operator")
    if type(operator) is not str or operator not in _OPERATORS:
        raise FieldError(f'{field}: "{operator}" is not an operator')
    values = fields.strings(expression, "values", field, limits.VALUES)
    return Requirement(fields.text(expression, "key"), operator, values, is_field)


def _tolerations(spec: Json) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            fields.text(t, "key"), operator, fields.text(t, "value"), fields.text(t, "effect")
        )
        for t in fields.entries(spec, "tolerations", "spec", limits.TOLERATIONS)
        if (operator := t.get("operator") or "Equal") in ("Equal", "Exists")
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
            sorts = [each for each in sorted(container_requests(container, where)) if _is_gpu(each)]
            if len(sorts) > 1:
                return (
                    f"{where}.resources: {' and '.join(sorts)}: a container sees GPUs or MIG slices "
                    "of one profile, not both; use a container for each"
                )
    return ""


def _is_gpu(resource: str) -> bool:
    return resource in (names.GPU, names.GPU_SHARE) or is_slice(resource)


def _unsupported(spec: Json, amounts: dict[str, int]) -> str:
    for field in ("containers", "initContainers"):
        if len(spec.get(field) or ()) > limits.CONTAINERS:
            return fields.too_long(f"spec.{field}", spec[field], limits.CONTAINERS)
    if len(amounts) > limits.RESOURCES + 1:  # and pods
        return fields.too_long("spec.containers.resources", amounts, limits.RESOURCES)
    for name, amount in amounts.items():
        if amount == bounded(name, amount + 1):  # cut: a reason with this number would be wrong
            most = wording.amount(name, amount)
            return f"spec.containers.resources: {name}: {most} or more; no machine has that much"
    return ""

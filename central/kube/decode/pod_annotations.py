"""The annotations of a pod, in two tables: those that set a field of PodSeen, and those that change the
PodSpec. A new annotation is a function below and a row in one of the tables.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from central.kube.decode import fields
from central.kube.decode.fields import FieldError, FirstError
from central.kube.decode.quantities import InvalidQuantity, parse_duration, parse_quantity
from central.kube.decode.topology_constraints import (
    TopologyConstraints,
    highest_tier,
    placement_policy,
)
from central.model import limits
from central.model.defaults import SUSPENSION_S
from central.model.facts import PodSpec
from central.model.gpu_models import folded_model
from central.model.json_types import Json
from protos import names, slicing
from protos.gpu_sharing import RANKS, REQUESTABLE
from protos.names import GPU_LEAST, GPU_MEMORY, GPU_MEMORY_LEVEL, GPU_MODEL, GPU_SHARE
from protos.nic_ids import is_rail

# The annotations that a reader looks at, the reader, and the field of PodSeen that it sets.
FieldRow = tuple[frozenset[str], Callable[[Json], Any], str]

_MOST = 2**31 - 1
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_LIMIT = re.compile(r"0|[1-9]\d{0,9}|max", re.ASCII)  # not 010, which is 8 to the kernel


class PodAnnotations:
    """The tables, for a network tree with the levels of `topology`."""

    def __init__(self, topology: TopologyConstraints) -> None:
        levels = frozenset((names.TOPOLOGY_REQUIRED, names.TOPOLOGY_PREFERRED))
        tiers = frozenset((names.TOPOLOGY_MODE, names.TOPOLOGY_TIER))
        read_levels = topology.from_annotations
        self._any_pod: tuple[FieldRow, ...] = (
            (frozenset((names.RUNS_FOR,)), _runs_for, "runs_for_s"),
        )
        self._our_pods: tuple[FieldRow, ...] = (
            (levels, lambda annotations: read_levels(annotations)[0], "topology_required"),
            (levels, lambda annotations: read_levels(annotations)[1], "topology_preferred"),
            (tiers, highest_tier, "required_tier"),
            (frozenset((names.PLACEMENT,)), placement_policy, "placement"),
            *self._any_pod,
            (frozenset((names.MOVABLE,)), partial(_flag, key=names.MOVABLE), "movable"),
            (frozenset((names.SUSPENDABLE,)), _suspension, "suspension_s"),
            (frozenset((names.COOLDOWN,)), partial(duration, key=names.COOLDOWN), "cooldown_s"),
            (frozenset((names.START_WITHIN,)), start_within, "start_within_s"),
        )

    def fields(self, annotations: Json, ours: bool, errors: FirstError) -> Json:
        """The fields of PodSeen that the annotations set; those that can't be read are left out."""
        found: Json = {}
        for keys, read, field in self._our_pods if ours else self._any_pod:
            if not keys.isdisjoint(annotations):
                try:
                    found[field] = read(annotations)
                except FieldError as error:
                    errors.add(error)
        return found


def apply_to_spec(annotations: Json, spec: PodSpec, errors: FirstError) -> PodSpec:
    """The spec with what the annotations of _SPEC_ROWS ask for, as far as they can be read."""
    for keys, apply in _SPEC_ROWS:
        if not keys.isdisjoint(annotations):
            spec = errors.read(spec, apply, annotations, spec)
    return spec


def _runs_for(annotations: Json) -> float | None:
    """The expected run time in seconds."""
    return duration(annotations, names.RUNS_FOR) if annotations[names.RUNS_FOR] else None


def preemptable(labels: Json, annotations: Json, errors: FirstError) -> bool | None:
    """volcano.sh/preemptable of a pod or PodGroup, in the spellings that Volcano accepts; the annotation takes
    precedence over the label. None: not set."""
    for kind, found in (("annotation", annotations), ("label", labels)):
        if (value := found.get(names.PREEMPTABLE)) is not None:
            if value not in _BOOLEANS:
                where = f"{kind} {names.PREEMPTABLE}"
                errors.add(FieldError(f'{where}: "{value!s:.32}" is neither true nor false'))
                return False
            return _BOOLEANS[value]
    return None


def start_within(annotations: Json) -> float | None:
    """Returns the seconds until a pod or gang must be ready; None: not set."""
    return duration(annotations, names.START_WITHIN) if names.START_WITHIN in annotations else None


def time_limit(annotations: Json) -> float | None:
    """Returns the seconds that a run of the gang may last; None: no limit."""
    limit_s = duration(annotations, names.TIME_LIMIT) if names.TIME_LIMIT in annotations else None
    if limit_s is not None and limit_s < 1.0:
        raise FieldError(f"annotation {names.TIME_LIMIT}: {limit_s:g} s is less than 1 s")
    return limit_s


def duration(annotations: Json, key: str) -> float:
    return fields.parsed(f"annotation {key}", parse_duration, annotations[key])


def _flag(annotations: Json, key: str) -> bool:
    return fields.choice(f"annotation {key}", annotations[key], "true", "false") == "true"


def _suspension(annotations: Json) -> float | None:
    """Returns the cost of a suspension in seconds; None if the pod may not be suspended."""
    value = annotations[names.SUSPENDABLE]
    if value in ("true", "false"):
        return SUSPENSION_S if value == "true" else None
    try:
        return parse_duration(value)
    except InvalidQuantity:
        raise FieldError(
            f'annotation {names.SUSPENDABLE}: "{value!s:.32}" is neither true, nor false, nor a duration such as 30s'
        ) from None


def _rdma_limits(annotations: Json, spec: PodSpec) -> PodSpec:
    """The pod's limits on each of its RDMA NICs, under the kernel's names (-1: max). A pod has at most
    as many NICs as shares; the sum over them is requested like any other resource."""
    limits = []
    for limit, key in (("hca_handle", names.RDMA_HANDLES), ("hca_object", names.RDMA_OBJECTS)):
        if (value := annotations.get(key)) is None:
            continue
        text = str(value)
        if len(text) > 10 or not _LIMIT.fullmatch(text) or (text != "max" and int(text) >= _MOST):
            raise FieldError(f'annotation {key}: "{value}" is neither a whole number nor max')
        limits.append((limit, -1 if value == "max" else int(value)))
    if limits and not spec.has_nics:
        raise FieldError(f"annotation {names.RDMA_HANDLES}: no container asks for {names.RDMA}")
    nics = sum(count for _, count in spec.rdma_containers)
    nics += sum(count for resource, count in spec.requests if is_rail(resource))
    total = {limit: most * nics for limit, most in limits if most > 0}
    requests = tuple(sorted({**dict(spec.requests), **total}.items()))
    return replace(spec, requests=requests, rdma_limits=tuple(limits))


def _gpu_memory(annotations: Json, spec: PodSpec) -> PodSpec:
    """The cap on GPU memory, and how strictly at least it must be enforced."""
    cap, level = annotations.get(GPU_MEMORY), annotations.get(GPU_MEMORY_LEVEL)
    slices = [name for name, _ in spec.requests if slicing.is_slice(name)]
    if slices and not spec.share_containers:
        _check_mig_memory(slices, cap, level)
        return spec
    if cap is None:
        raise FieldError(f"annotation {GPU_MEMORY_LEVEL}: there is no {GPU_MEMORY} to enforce")
    if not spec.share_containers:
        raise FieldError(f"annotation {GPU_MEMORY}: no container asks for {GPU_SHARE}")
    size = _bytes(GPU_MEMORY, cap)
    return replace(
        spec, memory_cap=size, memory_level=_level(REQUESTABLE[0] if level is None else level)
    )


def _check_mig_memory(slices: list[str], cap: Any, level: Any) -> None:
    """The profile of a MIG slice gives its memory, and the hardware enforces it, except where compute
    instances share the memory of their GPU instance."""
    if cap is not None:
        raise FieldError(f"annotation {GPU_MEMORY}: the profile of {slices[0]} sets its memory")
    for name in slices:
        holds = slicing.enforcement(name.removeprefix(names.MIG))
        if RANKS[holds] < RANKS[_level(level)]:
            raise FieldError(
                f'annotation {GPU_MEMORY_LEVEL}: "{level}": slices like {name} share their memory '
                f"with others ({holds})"
            )


def _level(level: Any) -> str:
    return fields.choice(f"annotation {GPU_MEMORY_LEVEL}", level, *REQUESTABLE)


def _full_speed(annotations: Json, spec: PodSpec) -> PodSpec:
    return replace(spec, full_speed=_flag(annotations, names.GPU_FULL_SPEED))


def _gpu_model(annotations: Json, spec: PodSpec) -> PodSpec:
    """Reads the allowed models of the pod's GPUs, and the memory that each must have."""
    models, least = annotations.get(GPU_MODEL), annotations.get(GPU_LEAST)
    key = GPU_MODEL if models is not None else GPU_LEAST
    gpus = (names.GPU, GPU_SHARE, *names.OTHER_GPUS)
    if not any(name in gpus or name.startswith(names.MIG) for name, _ in spec.requests):
        raise FieldError(f"annotation {key}: no container asks for GPUs")
    text = fields.text(annotations, GPU_MODEL) if models is not None else ""
    patterns = tuple(sorted({folded_model(part) for part in text.split(",")} - {""}))
    if models is not None and not patterns:
        example = "write it like H100,H200 or *80GB*"
        raise FieldError(f"annotation {GPU_MODEL}: it names no model; {example}")
    size = _bytes(GPU_LEAST, least) if least is not None else 0
    return replace(spec, gpu_models=patterns, gpu_memory=size)


def _same_attribute(annotations: Json, spec: PodSpec) -> PodSpec:
    key = names.SAME_ATTRIBUTE
    text = fields.text(annotations, key, limits.NAME)
    domain, _, name = text.partition("/")
    if not domain or not name:
        raise FieldError(f'annotation {key}: "{text:.80}" is not like gpu.nvidia.com/rail')
    return replace(spec, same_attribute=text)


def _bytes(annotation: str, quantity: object) -> int:
    size = fields.parsed(f"annotation {annotation}", parse_quantity, "memory", quantity)
    if size <= 0:
        raise FieldError(f'annotation {annotation}: "{quantity}" is not a positive size')
    return size


# The annotations that a reader looks at, and the reader, which returns the changed spec.
_SPEC_ROWS = (
    (frozenset((names.RDMA_HANDLES, names.RDMA_OBJECTS)), _rdma_limits),
    (frozenset((GPU_MEMORY, GPU_MEMORY_LEVEL)), _gpu_memory),
    (frozenset((names.SAME_ATTRIBUTE,)), _same_attribute),
    (frozenset((names.GPU_FULL_SPEED,)), _full_speed),
    (frozenset((GPU_MODEL, GPU_LEAST)), _gpu_model),
)

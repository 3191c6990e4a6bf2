"""What a pod's annotations say of its GPU's memory."""

from dataclasses import replace
from typing import Any

from central.kube.decode.quantities import InvalidQuantity, parse_quantity
from central.model.facts import PodSpec
from central.model.json_types import Json
from protos import slicing
from protos.gpu_sharing import RANKS, REQUESTABLE
from protos.names import GPU_MEMORY, GPU_MEMORY_LEVEL, GPU_SHARE, MIG


def wishes(annotations: Json, spec: PodSpec) -> tuple[PodSpec, str]:
    """The spec with its cap and the least enforcement of it; and what is wrong with them."""
    cap, level = annotations.get(GPU_MEMORY), annotations.get(GPU_MEMORY_LEVEL)
    if cap is None and level is None:
        return spec, ""
    slices = [name for name, _ in spec.requests if slicing.is_slice(name)]
    if slices and not spec.share_containers:
        return spec, _of_slices(slices, cap, level)
    if cap is None:
        return spec, f"annotation {GPU_MEMORY_LEVEL}: there is no {GPU_MEMORY} to enforce"
    if not spec.share_containers:
        return spec, f"annotation {GPU_MEMORY}: no container asks for {GPU_SHARE}"
    size, wrong = memory(GPU_MEMORY, cap)
    if wrong:
        return spec, wrong
    if level is not None and level not in REQUESTABLE:
        return (
            spec,
            f'annotation {GPU_MEMORY_LEVEL}: "{level}" is not one of {", ".join(REQUESTABLE)}',
        )
    return replace(spec, memory_cap=size, memory_level=level or REQUESTABLE[0]), ""


def _of_slices(slices: list[str], cap: Any, level: Any) -> str:
    """A slice has a memory of its own: as much as its name says, and no program can have more."""
    if cap is not None:
        return f"annotation {GPU_MEMORY}: of {slices[0]} the profile says how much it has"
    if level not in REQUESTABLE:
        return f'annotation {GPU_MEMORY_LEVEL}: "{level}" is not one of {", ".join(REQUESTABLE)}'
    for name in slices:
        holds = slicing.enforcement(name.removeprefix(MIG))
        if RANKS[holds] < RANKS[level]:
            return (
                f'annotation {GPU_MEMORY_LEVEL}: "{level}": slices like {name} share their memory '
                f"with others ({holds})"
            )
    return ""


def memory(annotation: str, text: object) -> tuple[int, str]:
    """Bytes of GPU memory as people write them, and what is wrong with it."""
    try:
        size = parse_quantity("memory", text)
    except InvalidQuantity as error:
        return 0, f"annotation {annotation}: {error}"
    return size, "" if size > 0 else f'annotation {annotation}: "{text}" is no memory at all'

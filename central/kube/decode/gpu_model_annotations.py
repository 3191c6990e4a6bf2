"""What a pod's annotations say of the kind of GPU that it wants."""

from dataclasses import replace

from central.kube.decode.gpu_memory_annotations import memory
from central.model.facts import PodSpec
from central.model.json_types import Json
from central.model.selectors import fold
from protos.names import GPU, GPU_LEAST, GPU_MODEL, GPU_SHARE, MIG


def wishes(annotations: Json, spec: PodSpec) -> tuple[PodSpec, str]:
    """The spec with the models and the memory that its GPUs must have; and what is wrong with them."""
    models, least = annotations.get(GPU_MODEL), annotations.get(GPU_LEAST)
    if models is None and least is None:
        return spec, ""
    key = GPU_MODEL if models is not None else GPU_LEAST
    if not any(name in (GPU, GPU_SHARE) or name.startswith(MIG) for name, _ in spec.requests):
        return spec, f"annotation {key}: no container asks for GPUs"
    patterns = tuple(sorted({fold(part) for part in str(models or "").split(",")} - {""}))
    if models is not None and not patterns:
        return spec, f"annotation {GPU_MODEL}: it names no model; write it like H100,H200 or *80GB*"
    if least is None:
        return replace(spec, gpu_models=patterns), ""
    size, wrong = memory(GPU_LEAST, least)
    if wrong:
        return spec, wrong
    return replace(spec, gpu_models=patterns, gpu_memory=size), ""

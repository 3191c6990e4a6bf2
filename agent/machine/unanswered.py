"""Finds half-dead GPUs ("ERR!" in nvidia-smi): NVML answers UNKNOWN to a query that the GPU answered before, or that a
GPU like it on this machine answers. Drivers also answer UNKNOWN to what a kind of GPU cannot tell, so that UNKNOWN
alone is no fault, except for the slices of a GPU in MIG mode: without an answer it would have none. Pure.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from agent.machine.facts import GpuFacts, NvmlFacts

# Queries with a value, by driver version, UUID, and whether MIG mode is on.
Answered = Mapping[tuple[str, str, bool], frozenset[str]]
MIG_MODE = "nvmlDeviceGetMigMode"
FAR_END = "nvmlDeviceGetNvLinkRemote"  # begins the queries about the other end of a link
OF_SLICES = (  # begin the queries that each GPU in MIG mode answers
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
)
NAMED = 3  # queries in a message


def beside(gpus: Sequence[GpuFacts]) -> tuple[GpuFacts, ...]:
    """The GPUs of one survey, compared with each other. Without a value for the MIG mode a GPU is like those of any
    mode."""

    def alike(gpu: GpuFacts, other: GpuFacts) -> bool:
        modes = other.mig == gpu.mig or MIG_MODE in gpu.unknown
        return other.device_id == gpu.device_id and modes

    told = [
        {name for other in gpus if alike(gpu, other) for name in other.answered}
        | {name for name in gpu.unknown if gpu.mig and name.startswith(OF_SLICES)}
        for gpu in gpus
    ]
    return tuple(
        _judged(gpu, each, "a GPU like it answers", gpus)
        for gpu, each in zip(gpus, told, strict=True)
    )


def since(known: Answered, nvml: NvmlFacts) -> tuple[Answered, NvmlFacts]:
    """The GPUs compared with earlier surveys. Returns what is known now, and the facts with the faults found."""
    following = {key: names for key, names in known.items() if key[0] == nvml.driver_version}
    gpus = []
    for gpu in nvml.gpus:
        modes = (False, True) if MIG_MODE in gpu.unknown else (gpu.mig,)
        keys = [(nvml.driver_version, gpu.uuid, mode) for mode in modes]
        before = frozenset[str]().union(*(following.get(key, ()) for key in keys))
        gpus.append(_judged(gpu, before, "it answered before", nvml.gpus))
        following[nvml.driver_version, gpu.uuid, gpu.mig] = before.union(gpu.answered)
    return following, replace(nvml, gpus=tuple(gpus))


def _judged(
    gpu: GpuFacts, expected: Collection[str], why: str, gpus: Sequence[GpuFacts]
) -> GpuFacts:
    """The GPU, with a fault if an expected query has no value. A query about the far end of a link counts only if all
    other GPUs are well."""
    ill = any(other.fault or other.unknown for other in gpus if other is not gpu)
    silent = [name for name in gpu.unknown if not (ill and name.startswith(FAR_END))]
    missing = [name.removeprefix("nvmlDeviceGet") for name in silent if name in expected]
    if gpu.fault or not missing:
        return gpu
    more = f" and {len(missing) - NAMED} more queries" if len(missing) > NAMED else ""
    return replace(
        gpu, fault=f"NVML answers UNKNOWN to {', '.join(missing[:NAMED])}{more}, which {why}"
    )

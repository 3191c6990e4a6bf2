"""A DGX A100 whose last two GPUs are in MIG mode: one with unequal slices, one with the most
slices."""

import uuid
from dataclasses import replace

from agent.machine.facts import GpuFacts, Machine, NvLink, SliceFacts
from tests.captures.dgx import dgx_a100

NAME, MODEL = "dgx-a100-mig-8", "NVIDIA A100-SXM4-40GB"
# Memory in MiB by profile, of A100s with 40 and with 80 GB.
MIB = {"1g.5gb": 4864, "2g.10gb": 9984, "3g.20gb": 20096, "4g.20gb": 20096, "7g.40gb": 40192}
MIB |= {"1g.10gb": 9728, "2g.20gb": 19968, "3g.40gb": 40192, "4g.40gb": 40192, "7g.80gb": 80896}
UNEQUAL = {1: "3g.20gb", 5: "2g.10gb", 11: "1g.5gb", 12: "1g.5gb"}  # by GPU instance
EQUAL = dict.fromkeys(range(7, 14), "1g.5gb")


def sliced(gpu: GpuFacts, profiles: dict[int, str]) -> GpuFacts:
    """The same GPU in MIG mode, without NVLink and peers."""
    return replace(
        gpu,
        mig=True,
        slices=tuple(part(gpu, gi, profile) for gi, profile in profiles.items()),
        nvlinks=tuple(NvLink(link.link, active=False) for link in gpu.nvlinks),
        p2p_nvlink=tuple(-1 if status < 0 else 5 for status in gpu.p2p_nvlink),
    )


def part(gpu: GpuFacts, gi: int, profile: str, ci: int = 0) -> SliceFacts:
    own, _, whole = profile.rpartition("c.")
    processors = int(whole.partition("g.")[0])
    return SliceFacts(
        uuid=f"MIG-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{ci}.{gi}.{gpu.uuid}')}",
        name=f"{gpu.model} MIG {profile}",
        gi=gi,
        ci=ci,
        gi_slices=processors,
        ci_slices=int(own or processors),
        memory_bytes=MIB[whole] << 20,
    )


def dgx_a100_mig() -> Machine:
    made = dgx_a100(NAME, MODEL, 40)
    *whole, sixth, seventh = made.nvml.gpus
    closed = [replace(gpu, p2p_nvlink=(*gpu.p2p_nvlink[:6], 5, 5)) for gpu in whole]
    gpus = (*closed, sliced(sixth, UNEQUAL), sliced(seventh, EQUAL))
    return replace(made, nvml=replace(made.nvml, gpus=gpus))

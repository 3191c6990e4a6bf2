"""Which GPUs are fit for work, and why not. Pure: what was known and what was just seen, in; what
is to be believed, out. Everything can heal: the next look decides anew."""

from dataclasses import replace

from protos.topology import Gpu, NodeTopology

ABSENT = "the driver does not list it any more"


def judge(known: NodeTopology, seen: NodeTopology) -> NodeTopology:
    """GPUs are who their uuid says. Where known ones are missing and no fit one is new, the node
    keeps its layout, so that no index changes its meaning, and the missing are unhealthy."""
    before = {gpu.uuid for gpu in known.gpus}
    now = {gpu.uuid: gpu for gpu in seen.gpus}
    strangers = [gpu for gpu in seen.gpus if gpu.uuid not in before]
    if before <= now.keys() or any(gpu.healthy for gpu in strangers):
        return seen  # all there, as at the start, or other hardware
    return replace(known, gpus=tuple(_now(gpu, now.get(gpu.uuid), strangers) for gpu in known.gpus))


def _now(gpu: Gpu, seen: Gpu | None, strangers: list[Gpu]) -> Gpu:
    if seen is not None:
        return replace(gpu, healthy=seen.healthy, why=seen.why)
    # A GPU that is lost tells neither uuid nor address: it stands where it stood.
    for stranger in strangers:
        if stranger.pci == gpu.pci or (not stranger.pci and stranger.index == gpu.index):
            return replace(gpu, healthy=False, why=stranger.why)
    return replace(gpu, healthy=False, why=ABSENT)


def blind(known: NodeTopology, why: str) -> NodeTopology:
    """The GPUs can't be asked at all."""
    return replace(known, gpus=tuple(replace(gpu, healthy=False, why=why) for gpu in known.gpus))


def changes(known: NodeTopology, now: NodeTopology) -> tuple[str, ...]:
    """A sentence for each GPU whose health changed."""
    before = {gpu.uuid: gpu for gpu in known.gpus}
    said = []
    for gpu in now.gpus:
        old = before.pop(gpu.uuid, None)
        if not gpu.healthy and (old is None or old.healthy or old.why != gpu.why):
            said.append(f"GPU {gpu.index} ({gpu.uuid}) is not fit: {gpu.why}")
        elif gpu.healthy and old is not None and not old.healthy:
            said.append(f"GPU {gpu.index} ({gpu.uuid}) is fit again")
    said += [f"GPU {gpu.index} ({gpu.uuid}) is gone" for gpu in before.values()]
    return tuple(said)

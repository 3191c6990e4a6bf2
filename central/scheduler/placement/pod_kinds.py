"""The kinds of pods of one gang in the words of a reason. Kinds that request the same devices are told apart by what
else they request, or else by the first other part of their specs that differs.

    needs 4 pods x 8 GPUs and 1 pod
    needs 2 pods x 8 GPUs + 4 cpu and 1 pod x 8 GPUs + 16 cpu
    needs 1 pod and 1 pod with another node selector
"""

from collections import defaultdict
from collections.abc import Sequence

from central.model import wording
from central.model.facts import PodSpec
from central.scheduler.device_claims import device_reasons
from central.scheduler.inventory.pods import PodCounts
from protos.names import GPU, GPU_SHARE
from protos.slicing import is_slice

NAMED_KINDS = 8  # of pods in one sentence
TOLD_APART_BY = 3  # resources
# Fields of a spec as what a pod has one of.
_PARTS = (
    ("node_selector", "node selector"),
    ("node_terms", "node affinity"),
    ("tolerations", "list of tolerations"),
    ("gpu_models", "GPU model"),
    ("gpu_memory", "least GPU memory"),
    ("memory_cap", "cap on GPU memory"),
    ("memory_level", "enforcement of GPU memory"),
    ("rdma_containers", "request for NICs"),
    ("rail_containers", "request for NICs"),
    ("rules", "set of rules between pods"),
    ("matched", "set of rules between pods"),
    ("volumes", "set of volumes"),
    ("devices", "set of device claims"),
)
_OTHERS = ("another", "a third", "a fourth", "a fifth", "a sixth", "a seventh", "an eighth")


def describe(groups: PodCounts) -> str:
    """Returns for example "needs 4 pods x 8 GPUs and 1 pod"."""
    named = NAMED_KINDS if len(groups) > NAMED_KINDS + 1 else len(groups)
    parts = [f"{count} {kind}" for (_, count), kind in zip(groups, kinds(groups), strict=True)]
    parts[named:] = []
    if others := groups[named:]:
        parts.append(f"{sum(count for _, count in others)} of {len(others)} other kinds")
    return "needs " + " and ".join(parts)


def kinds(groups: PodCounts) -> list[str]:
    """Returns for each of the groups the words after the number of its pods, as in "pods x 8 GPUs"."""
    found = [_devices(spec) for spec, _ in groups]
    alike = defaultdict[str, list[int]](list)
    for index, requested in enumerate(found):
        alike[requested].append(index)
    words = [""] * len(groups)
    for requested, indices in alike.items():
        parts = [requested] * len(indices)
        if len(indices) > 1:
            parts = _told_apart(requested, [groups[index][0] for index in indices])
        for index, part in zip(indices, parts, strict=True):
            pods = wording.plural(groups[index][1], "pod")
            words[index] = f"{pods} {part}" if part else pods
    return words


def _devices(spec: PodSpec) -> str:
    """Returns the requested devices, as in "x 8 GPUs"; empty: none."""
    if share := spec.request(GPU_SHARE):
        return f"x {share} hundredths of a GPU"
    gpus = spec.request(GPU)
    each = [wording.counted(gpus, "GPU")] if gpus else []
    each += [wording.quantity(name, amount) for name, amount in spec.requests if is_slice(name)]
    each += device_reasons.asked(spec.devices) if spec.devices is not None else []
    return f"x {' + '.join(each)}" if each else ""


def _told_apart(requested: str, specs: Sequence[PodSpec]) -> list[str]:
    """requested: the devices, which are the same for all of the specs."""
    names = sorted({name for spec in specs for name, _ in spec.requests})
    differing = [name for name in names if len({spec.request(name) for spec in specs}) > 1]
    found, known = list[str](), defaultdict[str, list[PodSpec]](list)
    for spec in specs:
        amounts = [
            wording.quantity(name, amount)
            for name in differing[:TOLD_APART_BY]
            if (amount := spec.request(name))
        ]
        first = requested or ("x " + amounts.pop(0) if amounts else "")
        words = " + ".join([first, *amounts])
        found.append(f"{words}{_with_another(spec, known[words])}".strip())
        known[words].append(spec)
    return found


def _with_another(spec: PodSpec, before: Sequence[PodSpec]) -> str:
    """Returns the first part of the spec that differs from the first of those before, which are described alike, as in
    " with another node selector"; empty: there are none before."""
    if not before:
        return ""
    differs = (words for part, words in _PARTS if getattr(spec, part) != getattr(before[0], part))
    which = _OTHERS[min(len(before), len(_OTHERS)) - 1]
    return f" with {which} {next(differs, 'spec')}"

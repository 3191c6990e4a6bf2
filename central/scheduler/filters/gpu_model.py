"""Which kind of GPU a pod asks for, and whether a node has it: by the model and the memory that its agent
reports, or else by the labels of NVIDIA's GPU Feature Discovery. Pure.

Design: docs/design/0009-gpu-models.md
"""

import re
from functools import lru_cache

from central.model import wording
from central.model.facts import NodeSeen, PodSpec
from central.model.selectors import fold

PRODUCT, MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"  # GFD's labels; memory in MiB


def unequipped(spec: PodSpec, node: NodeSeen) -> str:
    """Why its GPUs are not of the kind that the pod asks for, in a few words; empty: they are."""
    if not spec.gpu_models and not spec.gpu_memory:
        return ""
    if not (gpus := node.gpus or _labelled(node)):
        return "kind of GPUs not known"
    if not all(_is(model, spec.gpu_models) for model, _ in gpus):
        return f"GPUs are {' and '.join(sorted({model or 'unnamed' for model, _ in gpus}))}"
    if (least := min(memory for _, memory in gpus)) < spec.gpu_memory:
        return f"GPUs have {wording.amount('memory', least)} of memory"
    return ""


def _labelled(node: NodeSeen) -> tuple[tuple[str, int], ...]:
    model, memory = node.labels.get(PRODUCT, ""), node.labels.get(MEMORY, "")
    if not model and not memory:
        return ()
    return ((model, int(memory) << 20 if memory.isascii() and memory.isdigit() else 0),)


@lru_cache(maxsize=1 << 12)
def _is(model: str, patterns: tuple[str, ...]) -> bool:
    folded = fold(model)
    return not patterns or any(_expression(pattern).fullmatch(folded) for pattern in patterns)


@lru_cache(maxsize=1 << 10)
def _expression(pattern: str) -> re.Pattern[str]:
    """A pattern means the whole name, or the words that it begins with: A10 is no A100."""
    return re.compile(".*".join(map(re.escape, fold(pattern).split("*"))) + "(-.*)?")

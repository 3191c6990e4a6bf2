"""The filter for GPU models and GPU memory: by what the node's agent reports, else by the labels of NVIDIA's GPU
Feature Discovery (GFD).

Design: docs/design/0009-gpu-models.md
"""

import re
from functools import lru_cache

from central.model import wording
from central.model.facts import NodeSeen, PodSpec
from central.model.selectors import folded_model

PRODUCT, MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"  # GFD's labels; memory in MiB


def mismatch(spec: PodSpec, node: NodeSeen) -> str:
    """Why the node's GPUs are not what the pod requires, in a few words; empty if they are."""
    if not spec.gpu_models and not spec.gpu_memory:
        return ""
    if not (gpus := node.gpus or _labelled(node)):
        return "GPU model unknown"
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
    folded = folded_model(model)
    return not patterns or any(_expression(pattern).fullmatch(folded) for pattern in patterns)


@lru_cache(maxsize=1 << 10)
def _expression(pattern: str) -> re.Pattern[str]:
    """A pattern matches a whole name or its first words, so A10 does not match A100. * matches anything."""
    return re.compile(".*".join(map(re.escape, folded_model(pattern).split("*"))) + "(-.*)?")

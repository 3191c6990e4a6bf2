"""The filter for GPU models and GPU memory: by what the node's agent reports, else by the labels of NVIDIA's GPU
Feature Discovery (GFD).

Design: docs/design/0009-gpu-models.md
"""

from functools import lru_cache

from central.model import wording
from central.model.facts import NodeSeen, PodSpec
from central.model.selectors import folded_model

PRODUCT, MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"  # GFD's labels; memory in MiB
UNKNOWN = "GPU model unknown"


def mismatch(spec: PodSpec, node: NodeSeen) -> str:
    """Why the node's GPUs are not what the pod requires, in a few words; empty if they are."""
    if not spec.gpu_models and not spec.gpu_memory:
        return ""
    if not (gpus := node.gpus or _labelled(node)):
        return UNKNOWN
    if not all(_is(model, spec.gpu_models) for model, _ in gpus):
        return f"GPUs are {' and '.join(sorted({model or 'unnamed' for model, _ in gpus}))}"
    if (least := min(memory for _, memory in gpus)) < spec.gpu_memory:
        return f"GPUs have {wording.amount('memory', least)} of memory"
    return ""


def _labelled(node: NodeSeen) -> tuple[tuple[str, int], ...]:
    model, memory = node.labels.get(PRODUCT, ""), node.labels.get(MEMORY, "")
    if not model and not memory:
        return ()
    known = memory.isascii() and memory.isdigit() and len(memory) <= 9  # 953 TiB
    return ((model, int(memory) << 20 if known else 0),)


@lru_cache(maxsize=1 << 12)
def _is(model: str, patterns: tuple[str, ...]) -> bool:
    folded = folded_model(model)
    return not patterns or any(_matches(folded_model(pattern), folded) for pattern in patterns)


def _matches(pattern: str, name: str) -> bool:
    """A pattern matches a whole name or its first words, so A10 does not match A100. * matches anything."""
    return _glob(pattern, name) or _glob(f"{pattern}-*", name)


def _glob(pattern: str, name: str) -> bool:
    """Takes the first place of each part between two *: later ones match nothing more. No backtracking, so
    the work is at most the product of both lengths."""
    first, *parts = pattern.split("*")
    if not parts:
        return name == first
    *middle, last = parts
    if not name.startswith(first):
        return False
    at = len(first)
    for part in middle:
        found = name.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(name) - len(last) >= at and name.endswith(last)

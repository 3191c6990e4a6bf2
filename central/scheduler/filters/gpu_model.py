"""The filter for GPU models and GPU memory: by what the node's agent reports, else by the labels of NVIDIA's GPU
Feature Discovery (GFD) and of what other vendors run beside their device plugins.

Design: docs/design/filters.md
"""

from central.model import wording
from central.model.facts import NodeSeen, PodSpec
from central.model.gpu_models import is_model

PRODUCTS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.intel.com/product",
    "node.kubernetes.io/npu.chip.name",
    "cloud.google.com/gke-tpu-accelerator",
)
MEMORY = "nvidia.com/gpu.memory"  # in MiB
UNKNOWN = "GPU model unknown"
MEMORY_UNKNOWN = "GPU memory unknown"


def mismatch(spec: PodSpec, node: NodeSeen) -> str:
    """Returns why the node's GPUs are not what the pod requires, in a few words; empty if they are."""
    if not spec.gpu_models and not spec.gpu_memory:
        return ""
    if not (gpus := known(node)):
        return UNKNOWN
    if not all(is_model(model, spec.gpu_models) for model, _ in gpus):
        return f"GPUs are {' and '.join(sorted({model or 'unnamed' for model, _ in gpus}))}"
    least = min(memory for _, memory in gpus)
    if spec.gpu_memory and not least:
        return MEMORY_UNKNOWN
    if least < spec.gpu_memory:
        return f"GPUs have {wording.amount('memory', least)} of memory"
    return ""


def known(node: NodeSeen) -> tuple[tuple[str, int], ...]:
    """Model and memory in bytes of the node's GPUs; 0: unknown."""
    return node.gpus or _labelled(node)


def labelled(node: NodeSeen) -> str:
    """The model by the node's labels; empty: no label has it."""
    return next((node.labels[key] for key in PRODUCTS if node.labels.get(key)), "")


def _labelled(node: NodeSeen) -> tuple[tuple[str, int], ...]:
    model, memory = labelled(node), node.labels.get(MEMORY, "")
    if not model and not memory:
        return ()
    known = memory.isascii() and memory.isdigit() and len(memory) <= 9  # 953 TiB
    return ((model, int(memory) << 20 if known else 0),)

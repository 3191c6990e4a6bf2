"""Node labels with the names and values of NVIDIA's GPU feature discovery (k8s-device-plugin v0.20.0, internal/lm),
as far as an agent's report has what they say. Pure.

Left out, because the report has no such value: gfd.timestamp, gpu.machine, gpu.mode, vgpu.*, and the engines and
multiprocessors of MIG slices. GPU shares are a resource of their own, so nvidia.com/gpu has neither a sharing strategy
nor MPS. Where a node's GPUs differ, the labels that describe one GPU are left out.

Design: docs/design/gpu-health.md
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from protos import slicing
from protos.names import GPU, MIG, SLOW_GPU
from protos.topology import Gpu, NodeTopology, Slice

NVIDIA = "nvidia.com/"
LONGEST = 63  # characters of a label's value
HEXADECIMAL = re.compile(r"[0-9a-f]{32}")
OF_SLICES = re.compile(
    rf"{re.escape(MIG)}[^/]+\.(count|product|memory|replicas|sharing-strategy|slices\.gi|slices\.ci)"
)
# 1c.3g.40gb: one compute slice of a GPU instance with three slices; 3g.40gb has all three.
SLICES = re.compile(r"(?:(\d+)c\.)?(\d+)g\.")
FAMILIES = {7: "volta", 8: "ampere", 9: "hopper", 10: "blackwell", 12: "blackwell", 13: "rubin"}
NEWER = {7: (5, "turing"), 8: (9, "ada-lovelace")}  # from this minor number on
# Compute capabilities whose GPUs all can be divided, or none can. GPUs with 12.0 differ.
DIVISIBLE = frozenset(("8.0", "9.0", "10.0", "10.3"))
WHOLE_ONLY = frozenset(("7.0", "7.2", "7.5", "8.6", "8.7", "8.9"))


def labels_of(topology: NodeTopology) -> dict[str, str]:
    """The labels for a node with this topology; none for a node without GPUs."""
    if not topology.gpus:
        return {}
    found = _of_node(topology) | _slices(topology)
    values = {_key(name): value_of(value) for name, value in found.items()}
    return {key: value for key, value in values.items() if value}


def _of_node(topology: NodeTopology) -> dict[str, str]:
    """The same labels for each node; one without a value is removed."""
    return {
        **_driver(topology),
        **_resource(GPU, topology.gpus),
        "mig.capable": _divisible(topology.gpus),
        "mig.strategy": "mixed" if any(gpu.mig for gpu in topology.gpus) else "",
        "mps.capable": "false",
        SLOW_GPU: str(len(topology.slow()) or ""),
        "gpu.clique": _clique(_common(gpu.clique for gpu in topology.gpus if gpu.clique)),
    }


def changes(current: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Returns a merge patch of the node's labels; None removes a label. Labels that this module does not write stay."""
    stale = [
        key for key in current if key not in wanted and (key in FIXED or OF_SLICES.fullmatch(key))
    ]
    missing = {key: value for key, value in wanted.items() if current.get(key) != value}
    return {**missing, **dict.fromkeys(stale)}


def value_of(text: str) -> str:
    """Writes a value as GPU feature discovery does: without other characters, blanks as -."""
    kept = "-".join(re.sub(r"[^A-Za-z0-9\-_. ]", "", text).split())
    return kept[:LONGEST].strip("-_.")


def _key(name: str) -> str:
    return name if name == SLOW_GPU or name.startswith(NVIDIA) else f"{NVIDIA}{name}"


def _driver(topology: NodeTopology) -> dict[str, str]:
    major, minor, revision = (*topology.driver_version.split("."), "", "", "")[:3]
    cuda_major, _, cuda_minor = topology.cuda_version.partition(".")
    return {
        "cuda.driver.major": major,
        "cuda.driver.minor": minor,
        "cuda.driver.rev": revision,
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision,
        "cuda.driver-version.full": topology.driver_version,
        "cuda.runtime.major": cuda_major,
        "cuda.runtime.minor": cuda_minor,
        "cuda.runtime-version.major": cuda_major,
        "cuda.runtime-version.minor": cuda_minor,
        "cuda.runtime-version.full": topology.cuda_version,
    }


def _resource(name: str, gpus: Sequence[Gpu]) -> dict[str, str]:
    """Counts all GPUs, also lost, unhealthy and divided ones, as GPU feature discovery does. A node on which all are
    divided has no replica of a whole GPU."""
    capability = _common(gpu.capability for gpu in gpus)
    major, _, minor = capability.partition(".")
    memory = {gpu.memory_bytes >> 20 for gpu in gpus}
    return {
        f"{name}.count": str(len(gpus)),
        f"{name}.replicas": "0" if all(gpu.mig for gpu in gpus) else "1",
        f"{name}.sharing-strategy": "none",
        f"{name}.product": _common(gpu.model for gpu in gpus),
        f"{name}.memory": str(memory.pop()) if len(memory) == 1 and 0 not in memory else "",
        f"{name}.family": _family(major, minor),
        f"{name}.compute.major": major,
        f"{name}.compute.minor": minor,
    }


def _slices(topology: NodeTopology) -> dict[str, str]:
    by_profile: dict[str, list[tuple[Gpu, Slice]]] = defaultdict(list)
    for gpu, part in slicing.of(topology):
        by_profile[part.profile].append((gpu, part))
    found: dict[str, str] = {}
    for profile, parts in by_profile.items():
        name = value_of(profile.replace("+", ".").replace(" ", ""))
        model = _common(gpu.model for gpu, _ in parts)
        memory = {part.memory_bytes >> 20 for _, part in parts}
        found |= {
            f"{MIG}{name}.count": str(len(parts)),
            f"{MIG}{name}.replicas": "1",
            f"{MIG}{name}.sharing-strategy": "none",
            f"{MIG}{name}.product": f"{value_of(model)}-MIG-{value_of(profile)}" if model else "",
            f"{MIG}{name}.memory": str(memory.pop()) if len(memory) == 1 else "",
        }
        if numbers := SLICES.match(profile):
            found[f"{MIG}{name}.slices.gi"] = numbers[2]
            found[f"{MIG}{name}.slices.ci"] = numbers[1] or numbers[2]
    return found


def _clique(reported: str) -> str:
    """The cluster's UUID with hyphens, and the clique's number; agents report the UUID without."""
    cluster, dot, number = reported.partition(".")
    return f"{UUID(cluster)}{dot}{number}" if HEXADECIMAL.fullmatch(cluster) else reported


def _family(major: str, minor: str) -> str:
    if not (major.isdecimal() and minor.isdecimal()):
        return ""
    since, newer = NEWER.get(int(major), (0, ""))
    return newer if newer and int(minor) >= since else FAMILIES.get(int(major), "undefined")


def _divisible(gpus: tuple[Gpu, ...]) -> str:
    """Returns whether MIG is possible; empty if the report does not say so."""
    if any(gpu.mig or gpu.capability in DIVISIBLE for gpu in gpus):
        return "true"
    return "false" if all(gpu.capability in WHOLE_ONLY for gpu in gpus) else ""


def _common(values: Iterable[str]) -> str:
    """The one value that all have; empty if they differ."""
    found = set(values)
    return found.pop() if len(found) == 1 else ""


FIXED = frozenset(map(_key, _of_node(NodeTopology())))

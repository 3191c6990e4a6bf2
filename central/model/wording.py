"""Resources, amounts and durations as text for users."""

from collections.abc import Iterable

from central.model.facts import PodSpec
from central.model.pod_rules import Expression, Requirement
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from protos.names import GPU, MIG
from protos.slicing import is_slice

# Before a reason that only a change of the nodes, the queue or the request can end.
NEVER = "can never start"

_UNITS = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"))


_NAMES = {
    GPU: "GPUs",
    GPU_EQUIVALENTS: "GPUs",
    "hca_handle": "RDMA handles",
    "hca_object": "RDMA objects",
}


def resource(name: str) -> str:
    return f"{name.removeprefix(MIG)} slices" if is_slice(name) else _NAMES.get(name, name)


def quantity(name: str, value: int) -> str:
    """An amount with its resource, as in "8 GPUs", "1 GPU" or "0.5 cpu"."""
    said, unit = amount(name, value), resource(name)
    countable = name == "pods" or unit != name
    return f"{said} {unit.removesuffix('s') if said == '1' and countable else unit}"


def are(name: str, value: int, more: str = "") -> str:
    """An amount as a subject, as in "8 are", "1 is" or "1 more is"."""
    said = amount(name, value)
    return f"{said}{more and f' {more}'} {'is' if said == '1' else 'are'}"


def nics(spec: PodSpec) -> str:
    """The NICs that the pod needs, for a refusal: with its RDMA limits still free."""
    limits = [f"{limit} {resource(key)}" for key, limit in spec.rdma_limits if limit > 0]
    return f"RDMA NICs with {' and '.join(limits) or 'the default limits'} left"


def amount(name: str, value: int) -> str:
    """An amount of the resource: CPU cores, bytes with a binary unit, GPUs to a hundredth, or a number."""
    if name == GPU_EQUIVALENTS:
        return f"{value / GPU_UNITS:.2f}".rstrip("0").rstrip(".")
    if name == "cpu":
        return f"{value / 1000:g}"
    if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        for size, unit in _UNITS:
            if value >= size:
                return f"{value / size:.4g}{unit}"
    return str(value)


def format_duration(span_s: float) -> str:
    """Formats a span such as 0.5 s, 90 s, 2 h 05 min."""
    if span_s < 120:
        return f"{span_s:.3g} s"
    minutes = round(span_s / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def plural(number: int, what: str, several: str = "") -> str:
    """Returns "pod" for 1, and "pods" for other numbers, or what several says."""
    return what if number == 1 else several or f"{what}s"


def counted(number: int, what: str) -> str:
    """Returns "1 pod" or "2 pods"."""
    return f"{number} {plural(number, what)}"


def some(names: Iterable[str]) -> str:
    """The first names in order, and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - 3
    return ", ".join(ordered[:3]) + (f" and {more} more" if more > 0 else "")


_COMPARES = {"NotIn": "!=", "Gt": ">", "Lt": "<"}


def labels(requirements: Iterable[Requirement | Expression]) -> str:
    """Requirements of labels much as `kubectl get -l` takes them, as in "zone=z1|z2,!spot"."""
    found = []
    for each in requirements:
        sign = _COMPARES.get(each.operator, "=") if each.values else ""
        values = "|".join([*each.values[:3], *(["..."] if len(each.values) > 3 else [])])
        found.append(f"{'!' * (each.operator == 'DoesNotExist')}{each.key}{sign}{values}")
    return ",".join([*found[:3], *(["..."] if len(found) > 3 else [])])

"""The API server's priority admission: resolves a PriorityClass to a pod's priority."""

from typing import Any

from central.model.json_types import Json
from central.simulator.documents import MakeError

_BUILT_IN = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class PriorityClasses:
    def __init__(self) -> None:
        self._classes: dict[str, tuple[int, str]] = {
            name: (value, "PreemptLowerPriority") for name, value in _BUILT_IN.items()
        }
        self._default: tuple[int, str] | None = None

    def add(self, name: str, raw: Json, wrong: MakeError) -> None:
        value = raw.get("value")
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(f"value: {value!r} is not a whole number")
        policy = raw.get("preemptionPolicy") or "PreemptLowerPriority"
        if policy not in {"PreemptLowerPriority", "Never"}:
            raise wrong(f"preemptionPolicy: {policy!r} is neither PreemptLowerPriority nor Never")
        self._classes[name] = (value, policy)
        if raw.get("globalDefault"):
            self._default = (value, policy)

    def apply(self, spec: dict[str, Any], wrong: MakeError) -> None:
        """A number that the pod brings itself stays, as in a dump of a running cluster."""
        name = spec.get("priorityClassName")
        if name and name not in self._classes:
            raise wrong(f"spec.priorityClassName: no PriorityClass {name} in the input")
        found = self._classes[name] if name else self._default
        own = spec.get("priority")
        if own is not None and (isinstance(own, bool) or not isinstance(own, int)):
            raise wrong(f"spec.priority: {own!r} is not a whole number")
        if found is not None:
            spec.setdefault("priority", found[0])
            spec.setdefault("preemptionPolicy", found[1])

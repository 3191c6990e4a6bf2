"""Extended resources, such as nvidia.com/gpu, that DeviceClasses serve.

A pod that requests one gets devices by a claim of its own, which the scheduler makes, where no node offers the resource
by a device plugin. Each class also serves a resource with its own name. Of classes that serve the same resource the
newest one does, as in kube-scheduler.

Design: docs/design/device-claims.md
"""

from collections import Counter
from collections.abc import Mapping

from central.model.amounts import Amounts
from central.model.device_claims import DeviceClaimSpec, DeviceRequest
from central.model.facts import DeviceClassSeen, NodeSeen, PodSpec
from protos.names import BY_CLASS


class ExtendedResources:
    def __init__(self) -> None:
        self._changed = False
        self.class_of: dict[str, str] = {}  # by resource
        self._offers: Counter[str] = Counter()  # nodes with the resource, by its name

    def put_node(self, node: NodeSeen | None, before: NodeSeen | None) -> None:
        now, then = _offered(node), _offered(before)
        for resource in now ^ then:
            had = self._offers.pop(resource, 0)
            if has := had + (1 if resource in now else -1):
                self._offers[resource] = has
            if resource in self.class_of and 0 in (had, has):
                self._changed = True

    def set_classes(self, classes: Mapping[str, DeviceClassSeen]) -> None:
        found: dict[str, str] = {}
        for each in sorted(classes.values(), key=lambda one: (one.created, one.name)):
            found[BY_CLASS + each.name] = each.name
            if each.resource:
                newest = classes.get(found.get(each.resource, ""))
                if newest is None or each.created > newest.created:
                    found[each.resource] = each.name
        self._changed |= found != self.class_of
        self.class_of.clear()
        self.class_of.update(found)

    def take_changed(self) -> bool:
        """Returns whether pods get a resource in another way since the last call."""
        changed, self._changed = self._changed, False
        return changed

    def served(self, spec: PodSpec) -> Amounts:
        """Returns the requests that a class serves."""
        return tuple(each for each in spec.requests if each[0] in self.class_of and each[1])

    def by_claim(self, spec: PodSpec) -> Amounts:
        """Returns those of them that no node offers by a device plugin."""
        return tuple(each for each in self.served(spec) if not self._offers[each[0]])

    def claim(self, amounts: Amounts) -> DeviceClaimSpec:
        """Returns a claim for these resources, with their names as names of its requests."""
        return DeviceClaimSpec(
            tuple((DeviceRequest(name, self.class_of[name], most),) for name, most in amounts)
        )


def _offered(node: NodeSeen | None) -> set[str]:
    amounts = node.allocatable.items() if node is not None else ()
    return {name for name, amount in amounts if amount > 0 and "/" in name}

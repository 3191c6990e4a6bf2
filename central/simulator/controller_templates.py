"""The pod templates of Kubernetes' own controllers in manifests, checked."""

from central.controllers.builtin_controllers import pod_of
from central.simulator.documents import BadInput, ManifestObject


class Template(ManifestObject):
    """A controller's pod template as an object. Errors name the controller."""

    __slots__ = ("_of",)

    def __init__(self, of: ManifestObject) -> None:
        super().__init__(of.place, pod_of(of.kind[1], of.raw, 0))
        self._of = of

    def wrong(self, what: str) -> BadInput:
        return self._of.wrong(f"spec.template.{what}")


def check(found: ManifestObject) -> None:
    """Checks a controller's spec and removes numbers that are null. Raises BadInput."""
    spec = found.part("spec")
    for key in ("replicas", "parallelism", "completions"):
        number = spec.get(key)
        if number is None:
            spec.pop(key, None)
        elif isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise found.wrong(f"spec.{key}: {number!r} is not a whole number")
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise found.wrong("spec.template.spec: missing")
    if not isinstance(template.get("metadata") or {}, dict):
        raise found.wrong("spec.template.metadata: not an object")

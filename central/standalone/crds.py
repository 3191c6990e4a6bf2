"""CustomResourceDefinitions: those that are shipped are served from the start, as if they had been applied."""

from functools import cache
from pathlib import Path

import yaml

from central.model.json_types import Json

FOLDER = Path(__file__).parent / "crds"  # daemonset/crds, by a link
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def shipped() -> tuple[Json, ...]:
    texts = [path.read_text() for path in sorted(FOLDER.glob("*.yaml"))]
    return tuple(d for text in texts for d in yaml.load_all(text, _LOADER) if d)


def served(definition: Json) -> tuple[str, str, str]:
    """The group, version and plural of what it defines."""
    spec = definition["spec"]
    version = next(one["name"] for one in spec["versions"] if one.get("storage"))
    return spec["group"], version, spec["names"]["plural"]

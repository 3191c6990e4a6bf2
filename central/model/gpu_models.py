"""Names of GPU models, and the patterns that match them.

Design: docs/design/filters.md
"""

import re
from functools import lru_cache

_VENDOR = re.compile(r"(nvidia-|tesla-|amd-|instinct-)+")


def folded_model(name: str) -> str:
    """A GPU model for comparison: "NVIDIA A100-SXM4-80GB", also as GFD writes it, gives "a100-sxm4-80gb", and
    AMD_Instinct_MI300X_OAM "mi300x-oam"."""
    return _VENDOR.sub("", "-".join(name.lower().replace("_", " ").split()), count=1)


@lru_cache(maxsize=1 << 12)
def is_model(model: str, patterns: tuple[str, ...]) -> bool:
    """Returns whether the model matches one of the patterns; without patterns every model does."""
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

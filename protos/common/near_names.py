"""The name that may be meant instead of one that does not exist, for the end of a sentence."""

from collections.abc import Iterable
from difflib import get_close_matches

ALIKE = 0.65  # --since is not --name (0.62), and defualt is default (0.86)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns "; did you mean NEAREST?"; empty: none is near."""
    near = get_close_matches(name, sorted(known), 1, ALIKE)
    return f"; did you mean {near[0]}?" if near else ""

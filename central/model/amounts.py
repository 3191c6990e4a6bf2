"""Types for amounts of resources by name."""

from collections.abc import Mapping

Resources = Mapping[str, int]


Amounts = tuple[tuple[str, int], ...]

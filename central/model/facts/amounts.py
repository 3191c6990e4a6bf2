"""How amounts of resources are told."""

from collections.abc import Mapping

Resources = Mapping[str, int]


Amounts = tuple[tuple[str, int], ...]

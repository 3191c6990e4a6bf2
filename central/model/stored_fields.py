"""Marks the fields of the scheduler's classes that a checkpoint does not contain, because facts say them again or they
are computed again (central/server/codec.py)."""

from types import MappingProxyType

NOT_STORED = MappingProxyType({"stored": False})  # as metadata of a dataclass's field

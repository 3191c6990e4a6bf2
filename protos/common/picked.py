"""Attributes of a value as the fields of a JSON object, or as arguments of a message. Pure."""

from typing import Any


def picked(value: object, names: str) -> dict[str, Any]:
    """Returns the attributes with these names by name. names: separated by spaces, in the order of the fields."""
    return {name: getattr(value, name) for name in names.split()}

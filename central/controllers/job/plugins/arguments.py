"""A plugin's arguments, as a job's author writes them (--port=22, --port 22, --enabled), as the
values of a frozen dataclass: its fields are the flags, its defaults theirs."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

Options = TypeVar("Options")

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))


class BadArgument(ValueError):
    """What is wrong with an argument, in words for who wrote it."""


def read(kind: type[Options], arguments: Sequence[str]) -> Options:
    """Raises Wrong."""
    known = {_flag(one): one for one in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    values: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        flag, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or flag not in known:
            there = ", ".join(f"--{name}" for name in known) or "none"
            raise BadArgument(f'"{argument}" is no argument of it; there are: {there}')
        one = known[flag]
        if one.type is bool or one.type == "bool":
            value = value if equals else "true"
        elif not equals:
            if not rest:
                raise BadArgument(f'"{argument}" has no value')
            value = rest.pop(0)
        values[one.name] = _value(argument, value, type(one.default))
    return kind(**values)


def _flag(one: Any) -> str:
    return str(one.metadata.get("flag") or one.name.replace("_", "-"))


def _value(argument: str, value: str, kind: type) -> str | int | bool:
    if kind is bool:
        if value not in _TRUE | _FALSE:
            raise BadArgument(f'"{argument}": "{value}" is neither true nor false')
        return value in _TRUE
    if kind is int:
        if not (value.isascii() and value.isdigit()):
            raise BadArgument(f'"{argument}": "{value}" is not a whole number')
        return int(value)
    return value


def port(name: str, number: int) -> None:
    """Raises Wrong."""
    if not 0 < number < 65536:
        raise BadArgument(f"--{name}: {number} is no port (1 to 65535)")

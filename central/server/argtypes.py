"""Types of command-line arguments for argparse. Each names what is wrong in one sentence. Pure."""

import re
from argparse import ArgumentTypeError

from protos.names import ISLAND, NODE, NUMA

_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)


def shown(default: object) -> str:
    """A default as a user would type it; empty: there is nothing to show."""
    if isinstance(default, tuple | list):
        return ",".join(default)
    if default is None or isinstance(default, bool):
        return ""
    return f"{default:g}" if isinstance(default, float) else str(default)


def names(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(set(found)) != len(found):
        raise ArgumentTypeError(f'"{text}" contains a name twice')
    return found


def some_names(text: str) -> tuple[str, ...]:
    if not (found := names(text)):
        raise ArgumentTypeError(f'"{text}" contains no name')
    return found


def label_keys(text: str) -> tuple[str, ...]:
    """Levels of the network tree. Empty for a cluster without racks."""
    found = names(text)
    for key in found:
        if key in (NODE, NUMA, ISLAND):
            raise ArgumentTypeError(f"{key} is a built-in level, below those of the network tree")
        if not _LABEL_KEY.fullmatch(key):
            raise ArgumentTypeError(f'"{key}" is not a label key, such as lockstep.dev/rack')
    return found


def address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536:
        return text
    raise ArgumentTypeError(f'"{text}" is not HOST:PORT')


def listen(text: str) -> str:
    """Port 0 is any free port. Empty (only as a default): do not listen."""
    return text if not text or (text.endswith(":0") and len(text) > 2) else address(text)


def port(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) < 65536:
        return int(text)
    raise ArgumentTypeError(f"{text} is not a port (0 to 65535)")


def whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 10**9:
        raise ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text)


def number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) >= 2**63:
        raise ArgumentTypeError(f"{text} is not a whole number")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise ArgumentTypeError(f"{text} is not a number of seconds")
    return value

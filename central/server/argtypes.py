"""Command-line flags and the types of their values. Each type names what is wrong in one sentence."""

import os
import re
from argparse import Action, _ActionsContainer
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protos.names import BY_CLASS, GPU, GPU_SHARE, NODE, PARTS_OF_NODE

# each command loads this module: what few flags need is imported where they are read
if TYPE_CHECKING:
    from central.kube.decode.gang_rules import GangRule
    from central.model.facts import Taint

SHORTEST_INTERVAL_S = 0.1
RULES_BYTES = 2**16  # of the file of --pod-groups, with 32 declarations at most
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)


_PART = re.compile(r"[0-9]{1,4}(/[1-9][0-9]{0,3}|\.[0-9]{1,4})?", re.ASCII)


def add_flag(
    parser: _ActionsContainer,
    typed: str,
    about: str,
    *,
    env: str = "",
    shown: str = "",
    **more: Any,
) -> Action:
    """typed: the flag's names and its value's name, such as "-r --replicas N". Without a value's name
    and choices the flag is a switch. env: the variable that changes the default. shown: the default in
    the help, if not the value. Other keywords are argparse's."""
    *names, last = typed.split()
    if last.startswith("-"):
        names.append(last)
        if "choices" not in more:
            more["action"] = "store_true"
    else:
        more["metavar"] = last
    if more.get("action") != "store_true":
        given = os.environ.get(env)
        more["default"], shown = given or more.get("default", ""), given or shown
    notes = [f"env {env}"] if env else []
    if shown := shown or _as_typed(more.get("default")):
        notes.append(f"default {shown}")
    return parser.add_argument(
        *names, help=about + (f" ({'; '.join(notes)})" if notes else ""), **more
    )


def _as_typed(default: object) -> str:
    if isinstance(default, tuple | list):
        return ",".join(default)
    if default is None or isinstance(default, bool):
        return ""
    return f"{default:g}" if isinstance(default, float) else str(default)


def names(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(set(found)) != len(found):
        raise ValueError(f'"{text}" contains a name twice')
    return found


def some_names(text: str) -> tuple[str, ...]:
    if not (found := names(text)):
        raise ValueError(f'"{text}" contains no name')
    return found


def https_url(text: str) -> str:
    """An address without a slash at its end; "" for none."""
    if not text:
        return ""
    from urllib.parse import urlsplit

    try:
        found = urlsplit(text)
    except ValueError:
        found = urlsplit("")
    if (
        found.scheme != "https"
        or not found.hostname
        or found.query
        or found.fragment
        or "@" in found.netloc
    ):
        raise ValueError(f'"{text}" must be like https://HOST or https://HOST/PATH')
    return text.rstrip("/")


def secret(flag: str, file: str, least: int) -> bytes:
    """Reads the file that a flag names. Raises ValueError, whose sentence does not contain the secret."""
    try:
        found = Path(file).read_bytes().strip()
    except OSError as error:
        raise ValueError(f"{flag} {file}: {error.strerror}") from error
    if len(found) < least:
        raise ValueError(f"{flag} {file}: needs at least {least} characters")
    return found


def label_keys(text: str) -> tuple[str, ...]:
    """Levels of the network tree. Empty for a cluster without racks."""
    found = names(text)
    for key in found:
        if key in (NODE, *PARTS_OF_NODE):
            raise ValueError(f"{key} is a built-in level, below those of the network tree")
        if not _LABEL_KEY.fullmatch(key):
            raise ValueError(f'"{key}" is not a label key, such as lockstep.dev/rack')
    return found


def mig_fractions(text: str) -> tuple[tuple[str, Fraction], ...]:
    """Parses the part of a GPU that one of each resource is."""
    found: dict[str, Fraction] = {}
    for each in names(text):
        resource, _, part = each.partition("=")
        if resource in (GPU, GPU_SHARE) or "/" not in resource:
            raise ValueError(
                f'"{each}": {resource} is not a MIG resource (nvidia.com/mig-...), a DeviceClass '
                f"({BY_CLASS}NAME) or another extended resource"
            )
        if _PART.fullmatch(part) is None or not 0 < (value := Fraction(part)) <= 1:
            raise ValueError(f'"{each}": "{part}" is not a part of a GPU, such as 1/4 or 0.25')
        if resource in found:
            raise ValueError(f'"{text}" contains {resource} twice')
        found[resource] = value
    return tuple(found.items())


def node_condition(text: str) -> tuple[str, str]:
    """The type, and the status that means a problem."""
    kind, _, status = text.partition("=")
    if not _LABEL_KEY.fullmatch(kind):
        raise ValueError(f'"{text}" is not a condition type, such as GpuUnhealthy')
    if text != kind and status not in ("True", "False"):
        raise ValueError(f'"{status}" is not a status: True or False')
    return kind, status or "True"


def node_taint(text: str) -> "Taint":
    from central.model.facts import Taint

    term, _, effect = text.rpartition(":")
    key, equals, value = term.partition("=")
    good_value = not equals or _LABEL_VALUE.fullmatch(value)
    if effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise ValueError(
            f'"{text}" is not KEY[=VALUE]:EFFECT with NoSchedule, PreferNoSchedule or NoExecute'
        )
    if not _LABEL_KEY.fullmatch(key) or not good_value:
        raise ValueError(f'"{term}" is not KEY or KEY=VALUE of a taint')
    return Taint(key, value, effect)


def address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536:
        return text
    raise ValueError(f'"{text}" is not HOST:PORT')


def listen(text: str) -> str:
    """Port 0 is any free port. Empty (only as a default): do not listen."""
    return text if not text or (text.endswith(":0") and len(text) > 2) else address(text)


def collector(text: str) -> str:
    """Empty (only as a default): none."""
    from central.server.otlp_endpoint import EndpointUnusable, check_url

    try:
        return check_url(text) if text else text
    except EndpointUnusable as error:
        raise ValueError(str(error)) from error


def port(text: str) -> int:
    return integer(text, 0, 65535, "a port (0 to 65535)")


def whole(text: str) -> int:
    return integer(text, 1, 10**9 - 1, "a whole number above 0")


def number(text: str) -> int:
    return integer(text, 0, 2**63 - 1, "a whole number of 0 or more")


def integer(text: str, least: int, most: int, what: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 100 and least <= int(text) <= most:
        return int(text)
    raise ValueError(f"{text:.100} is not {what}")


def gang_rules(path: str) -> "tuple[GangRule, ...]":
    """Reads the rules of the file. Its errors name the file and the field."""
    import yaml

    from central.kube.decode import plain_yaml
    from central.kube.decode.gang_rules import read_declarations

    try:
        with Path(path).open("rb") as file:
            content = file.read(RULES_BYTES + 1)
        if len(content) > RULES_BYTES:
            raise ValueError(f"more than {RULES_BYTES} bytes")
        return read_declarations(plain_yaml.load(content.decode()))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (ValueError, yaml.YAMLError) as error:  # FieldError and UnicodeDecodeError among them
        raise ValueError(f"{path}: {error}") from error


def share(text: str) -> float:
    return _decimal(text, 1.0, "a number from 0 to 1")


def seconds(text: str) -> float:
    return _decimal(text, 1e9 - 1, "a number of seconds")


def _decimal(text: str, most: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise ValueError(f"{text} is not {what}")
    return value


def span(text: str) -> float:
    """Seconds, of a number of them or of units."""
    from central.kube.decode.quantities import parse_duration

    return parse_duration(f"{text}s" if text.isdigit() else text)


def domains(text: str) -> dict[str, str]:
    """Names of domains by level, such as {"rack": "r1"}. An empty name is that of no domain."""
    pairs = [each.partition("=") for each in text.split(",")]
    for level, equals, name in pairs:
        if not (level and equals):
            raise ValueError(f'"{level}{equals}{name}" is not LEVEL=NAME')
    return {level: name for level, _, name in pairs}


def interval(text: str) -> float:
    value = seconds(text)
    if value < SHORTEST_INTERVAL_S:
        raise ValueError(f"{text} is less than {SHORTEST_INTERVAL_S} seconds")
    return value

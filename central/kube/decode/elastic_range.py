"""The range of sizes that annotations give an elastic object, and what they say about changes of its size. Sizes count
units: pods, or what the object's controller creates and deletes as one. Raises FieldError."""

import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from central.kube.decode.fields import FieldError, choice, parsed, pods_of, shown
from central.kube.decode.quantities import InvalidQuantity, parse_duration
from central.model import limits, speed_table
from central.model import work_left as work_left_of
from central.model.jobspec import EVEN, OBJECTIVES, ElasticTask
from central.model.speed_table import SpeedTable
from central.model.work_left import WorkLeft
from protos.names import (
    ELASTIC_ASK,
    ELASTIC_MAX,
    ELASTIC_MIN,
    ELASTIC_OBJECTIVE,
    ELASTIC_STEP,
    RESIZE_COST,
    SPEED,
    WORK_LEFT,
    YIELDS,
)

Notes = Mapping[str, Any]
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%", re.ASCII)
_STEPS = re.compile(r"(\d{1,15}) steps?", re.ASCII)
_KEYS = (ELASTIC_MIN, ELASTIC_MAX, ELASTIC_STEP)


class Range(NamedTuple):
    least: int
    most: int
    step: int


def is_elastic(notes: Notes) -> bool:
    return ELASTIC_MIN in notes or ELASTIC_MAX in notes


def read(notes: Notes) -> Range:
    found = [pods_of(f"annotation {key}", notes[key]) if key in notes else None for key in _KEYS]
    return _checked(*found)


def of_role(notes: Notes, roles: Sequence[str], what: str) -> tuple[str, Range]:
    """Annotations may name the role whose number of pods varies: `workers: 2`. what: of the roles, in messages."""
    named: dict[str, None] = {}
    found: list[int | None] = []
    for key in _KEYS:
        if key not in notes:
            found.append(None)
            continue
        name, value = _split(notes[key])
        if name:
            named[name] = None
        found.append(pods_of(f"annotation {key}", value))
    if len(named) > 1:
        first, second = list(named)[:2]
        raise FieldError(
            f"annotations {ELASTIC_MIN}, -max and -step name both {shown(first)} and {shown(second)}; the number of "
            "pods "
            f"of one {what} can vary"
        )
    role = next(iter(named), "")
    if not role and len(roles) == 1:
        role = roles[0]
    if role not in roles or not role:
        known = ", ".join(roles)[:200] or "none"
        wrong = f"there is no {what} {shown(role)}" if role else f"the name of a {what} is missing"
        raise FieldError(f"annotation {ELASTIC_MIN}: {wrong} (NAME: 2); there is {known}")
    return role, _checked(*found)


def task(name: str, notes: Notes, sizes: Range, unit: int = 1) -> ElasticTask:
    """Returns the task with sizes in pods. unit: number of pods that are created and deleted together."""
    if sizes.most * unit > limits.REPLICAS:
        raise FieldError(
            f"annotation {ELASTIC_MAX}: {sizes.most} units of {unit} pods are more than {limits.REPLICAS} pods"
        )
    objective = _choice(notes, ELASTIC_OBJECTIVE, EVEN, *OBJECTIVES)
    table = speeds(notes)
    least, most, step = (number * unit for number in sizes)
    return ElasticTask(
        name,
        least,
        most,
        step,
        objective,
        cost_s=cost_s(notes),
        yields=yields(notes),
        speeds=table,
        useful=table.useful(range(least, most + 1, step)) if table else (),
        asks=asks(notes),
        work_left=work_left(notes),
    )


def speeds(notes: Notes) -> SpeedTable | None:
    if SPEED not in notes:
        return None
    if not isinstance(notes[SPEED], str):
        raise FieldError(f"annotation {SPEED}: {shown(notes[SPEED])} is not a string")
    return parsed(f"annotation {SPEED}", speed_table.parse, notes[SPEED])


def cost_s(notes: Notes) -> float | None:
    if RESIZE_COST not in notes:
        return None
    field = f"annotation {RESIZE_COST}"
    seconds = parsed(field, parse_duration, notes[RESIZE_COST])
    if seconds > limits.RESIZE_COST_S:
        raise FieldError(f"{field}: more than {limits.RESIZE_COST_S} seconds")
    return seconds


def yields(notes: Notes) -> bool:
    return _choice(notes, YIELDS, "true", "true", "false") == "true"


def asks(notes: Notes) -> bool:
    return _choice(notes, ELASTIC_ASK, "none", "pods", "none") == "pods"


def _choice(notes: Notes, key: str, default: str, *choices: str) -> str:
    return choice(f"annotation {key}", notes.get(key, default), *choices)


def work_left(notes: Notes) -> WorkLeft | None:
    if WORK_LEFT not in notes:
        return None
    text = notes[WORK_LEFT]
    found = None
    if isinstance(text, str) and len(text) <= limits.AMOUNT_TEXT:
        found = _share(text) or _steps(text) or _time(text)
    if found is None:
        raise FieldError(
            f"annotation {WORK_LEFT}: {shown(text)} is none of a duration (3h), a share (42%) and a number of steps "
            "(18000 steps)"
        )
    return found


def _share(text: str) -> WorkLeft | None:
    match = _SHARE.fullmatch(text)
    share = float(match[1]) / 100 if match else inf
    return WorkLeft(work_left_of.SHARE, share) if share <= 1 else None


def _steps(text: str) -> WorkLeft | None:
    match = _STEPS.fullmatch(text)
    return WorkLeft(work_left_of.STEPS, float(match[1])) if match else None


def _time(text: str) -> WorkLeft | None:
    try:
        return WorkLeft(work_left_of.TIME, parse_duration(text))
    except InvalidQuantity:
        return None


def _split(value: Any) -> tuple[str, Any]:
    """The name, empty if there is none, and the rest."""
    if not isinstance(value, str) or ":" not in value[: limits.NAME + 1]:
        return "", value
    name, _, rest = value.partition(":")
    return name.strip(), rest.strip() if len(rest) <= limits.NAME else rest


def _checked(least: int | None, most: int | None, step: int | None) -> Range:
    for key, other, value in ((ELASTIC_MIN, ELASTIC_MAX, least), (ELASTIC_MAX, ELASTIC_MIN, most)):
        if value is None:
            raise FieldError(f"annotation {key}: missing beside {other}")
    assert least is not None
    assert most is not None
    step = 1 if step is None else step
    if least > most:
        raise FieldError(f"annotation {ELASTIC_MIN}: {least} is above {ELASTIC_MAX}, {most}")
    if (most - least) % step:
        raise FieldError(
            f"annotation {ELASTIC_STEP}: {step} does not divide {most - least}, which is {ELASTIC_MAX} less "
            f"{ELASTIC_MIN}"
        )
    return Range(least, most, step)

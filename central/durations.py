"""Spans of time as people write them: 500ms, 10s, 1h30m; a bare number is seconds. Pure."""

import re
from typing import Any

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d*)?", re.ASCII)
_MOST_S = 1e9


class NotADuration(ValueError):
    pass


def seconds(text: Any) -> float:
    """Raises NotADuration, a sentence."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        text = str(text)
    if isinstance(text, str):
        if _NUMBER.fullmatch(text):
            return _bounded(float(text), text)
        if _WHOLE.fullmatch(text):
            parts = _PART.findall(text)
            return _bounded(sum(float(number) * _UNITS[unit] for number, unit in parts), text)
    raise NotADuration(f"{text!r} is not a duration such as 10s, 1h30m or 500ms")


def _bounded(value: float, text: str) -> float:
    if value > _MOST_S:
        raise NotADuration(f"{text!r} is longer than {_MOST_S:.0e} s")
    return value


def words(span_s: float) -> str:
    """For people: 0.5 s, 90 s, 2 h 05 min."""
    if span_s < 120:
        return f"{span_s:.3g} s"
    minutes = round(span_s / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"

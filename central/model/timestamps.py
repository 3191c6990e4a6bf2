"""Formats times and durations as the Kubernetes API does. Reads no clock and no time zone of the machine."""

import re

DAY_S = 86400
_STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z", re.ASCII)


def stamp(seconds: float) -> str:
    """Seconds since the epoch as 1970-01-01T00:00:00Z, in UTC."""
    days, rest = divmod(int(seconds), DAY_S)
    year, month, day = _date(days)
    return f"{year:04}-{month:02}-{day:02}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}Z"


def read_stamp(text: str) -> int:
    """Parses a stamp() into seconds since the epoch. Raises ValueError."""
    found = _STAMP.fullmatch(text)
    if found is None:
        raise ValueError(f'"{text}" is not a time like 2026-11-20T10:00:00Z')
    year, month, day, hour, minute, second = map(int, found.groups())
    return _days(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second


def _days(year: int, month: int, day: int) -> int:
    """Returns the days since the epoch; the inverse of _date()."""
    year -= month <= 2
    passed = (153 * (month - 3 + 12 * (month <= 2)) + 2) // 5 + day - 1  # since 1 March
    return 365 * year + year // 4 - year // 100 + year // 400 + passed - 719_468


def _date(days: int) -> tuple[int, int, int]:
    """The Gregorian date. Years begin in March here, so that leap days come last."""
    era, day = divmod(days + 719_468, 146_097)  # since 1 March 0000, in cycles of 400 years
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    return 400 * era + year + (month >= 10), month + 3 - 12 * (month >= 10), day + 1


def duration(seconds: float) -> str:
    """Formats a duration such as 1h2m3s."""
    whole = max(0, int(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"

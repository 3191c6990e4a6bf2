"""Numbers of a Job's members as text with ranges: 0-5,8."""

from collections.abc import Iterable

from central.model import limits


def to_text(members: Iterable[int]) -> str:
    ranges: list[list[int]] = []
    for number in sorted(members):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)


def from_text(text: str) -> tuple[int, ...]:
    """Ascending. Raises ValueError with what is wrong."""
    if len(text) > limits.MEMBERS_TEXT:
        raise ValueError(f"{len(text)} characters; at most {limits.MEMBERS_TEXT} are accepted")
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        start = _number(first)
        end = _number(last) if dash else start
        if end < start:
            raise ValueError(f'"{part}" is not a range')
        found.update(range(start, end + 1))
    return tuple(sorted(found))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and int(text) < limits.REPLICAS):
        raise ValueError(f'"{text[:20]}" is not a number below {limits.REPLICAS}')
    return int(text)

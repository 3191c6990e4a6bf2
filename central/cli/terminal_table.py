"""Tables for a terminal, one style for all commands. If the full table is too wide, titles and cells take their short
forms. Cells are folded only if that is still too wide. Without a terminal tables are never shortened or coloured."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest

from protos.common.text_fold import fold, pieces

GAP = 2
RED, GREEN, YELLOW = 31, 32, 33
COLOURS = {
    **dict.fromkeys(("Running", "Completed", "Succeeded", "Ready", "Open"), GREEN),
    **dict.fromkeys(
        ("Pending", "Inqueue", "Unknown", "Restarting", "Completing", "Aborting", "Terminating",
         "Closing", "ContainerCreating"), YELLOW,
    ),
    **dict.fromkeys(
        ("Failed", "Aborted", "Terminated", "Closed", "Error", "OOMKilled", "CrashLoopBackOff",
         "ErrImagePull", "ImagePullBackOff", "StartError", "Evicted", "Invalid"), RED,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    short: str = ""  # the title in a narrow table
    wide: bool = False  # only with -o wide
    number: bool = False
    state: bool = False  # coloured by its first word, where there is a terminal


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a shorter form."""

    whole: str
    short: str


Row = Sequence[str | int | Cell]


def columns(titles: str) -> tuple[Column, ...]:
    """Parses titles, separated by commas, each with its short form behind a bar: "Name, ~State, #Pending|Pend, +User".
    Marks before a title: # numbers, ~ a state, + only with -o wide."""
    made = []
    for each in titles.split(", "):
        title, _, short = each.lstrip("#~+").partition("|")
        marks = each[: len(each) - len(each.lstrip("#~+"))]
        made.append(Column(title, short, "+" in marks, "#" in marks, "~" in marks))
    return tuple(made)


def width() -> int | None:
    """The terminal's width, else COLUMNS; None: unlimited, for programs that read the output."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) else None


def coloured() -> bool:
    """Returns whether states are coloured: on a terminal, unless NO_COLOR is set or the terminal is dumb."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def state(text: str) -> str:
    """Colours the text by its first word, on a terminal."""
    colour = COLOURS.get(text.strip().partition(" ")[0])
    if colour is None or not coloured():
        return text
    bare = text.strip()
    return text.replace(bare, f"\x1b[{colour}m{bare}\x1b[0m", 1)


def table(columns: Sequence[Column], rows: Sequence[Row], *, wide: bool, most: int | None) -> str:
    shown = [i for i, column in enumerate(columns) if wide or not column.wide]
    chosen = [columns[i] for i in shown]
    whole = _texts(chosen, [[row[i] for i in shown] for row in rows], short=False)
    if most is None or wide or _needs(whole, GAP) <= most:
        return _plain(chosen, whole, GAP)
    short = _texts(chosen, [[row[i] for i in shown] for row in rows], short=True)
    gap = GAP if _needs(short, GAP) <= most else 1
    if _needs(short, gap) <= most:
        return _plain(chosen, short, gap)
    return _folded(chosen, short, most)


class Feed:
    """A table that is printed row by row. Its columns only get wider."""

    def __init__(self, columns: Sequence[Column], *, wide: bool, most: int | None) -> None:
        self._columns = columns
        self._wide = wide
        self._most = most
        self._widths: list[int] = []
        self._short = False

    def add(self, row: Row) -> str:
        """The row's line; the first row's comes below the titles."""
        shown = [i for i, column in enumerate(self._columns) if self._wide or not column.wide]
        chosen = [self._columns[i] for i in shown]
        cells = [[row[i] for i in shown]]
        if not self._widths:
            whole = _texts(chosen, cells, short=False)
            self._short = (
                not self._wide and self._most is not None and _needs(whole, GAP) > self._most
            )
        lines = _texts(chosen, cells, short=self._short)
        before = self._widths or [0] * len(chosen)
        first = not self._widths
        self._widths = [max(pair) for pair in zip(before, _widths(lines), strict=True)]
        return _lines(
            chosen, lines if first else lines[1:], self._widths, 1 if self._short else GAP
        )


def _texts(columns: Sequence[Column], rows: Sequence[Row], *, short: bool) -> list[list[str]]:
    titles = [(column.short if short else "") or column.title for column in columns]
    titles = [printable(title.upper()) for title in titles]
    return [titles, *([_text(cell, short=short) for cell in row] for row in rows)]


def _text(cell: str | int | Cell, *, short: bool) -> str:
    if isinstance(cell, Cell):
        return printable(cell.short if short else cell.whole)
    return printable(str(cell))


def printable(text: str) -> str:
    """Replaces characters that a terminal would obey, such as escape sequences in other people's messages."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _needs(lines: list[list[str]], gap: int) -> int:
    return sum(_widths(lines)) + gap * (len(lines[0]) - 1)


def _widths(lines: list[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _plain(columns: Sequence[Column], lines: list[list[str]], gap: int) -> str:
    return _lines(columns, lines, _widths(lines), gap)


def _lines(columns: Sequence[Column], lines: list[list[str]], widths: list[int], gap: int) -> str:
    text = ""
    for line in lines:
        cells = [
            cell.rjust(wide)
            if column.number
            else state(cell.ljust(wide))
            if column.state
            else cell.ljust(wide)
            for column, cell, wide in zip(columns, line, widths, strict=True)
        ]
        text += (" " * gap).join(cells).rstrip() + "\n"
    return text


def _folded(columns: Sequence[Column], lines: list[list[str]], most: int) -> str:
    """The widest columns become narrower, at first only as far as their longest word lets them."""
    widths = _widths(lines)
    by_column = list(zip(*lines, strict=True))
    words = [max(map(_longest_word, column)) for column in by_column]
    titles = [max(1, min(len(title), 4)) for title in lines[0]]
    last = [1] * len(widths)
    for at, column in enumerate(columns):
        if column.number:  # its numbers stay whole, its title need not
            words[at] = titles[at] = widths[at]
            last[at] = max((len(cell) for cell in by_column[at][1:]), default=1)
    for least in (words, titles, last):
        _narrow(widths, least, most - (len(columns) - 1))
    text = ""
    for line in lines:
        cells = [fold(cell, wide) for cell, wide in zip(line, widths, strict=True)]
        parts = [list(each) for each in zip_longest(*cells, fillvalue="")]
        text += _lines(columns, parts, widths, 1)
    return text


def _longest_word(cell: str) -> int:
    """Returns the length of the longest piece that fold() does not break first."""
    return max((len(piece) for word in cell.split() for piece in pieces(word, 12)), default=1)


def _narrow(widths: list[int], least: list[int], most: int) -> None:
    """Takes from the widest of the columns until all fit or none can give more."""
    while (over := sum(widths) - most) > 0:
        able = [at for at, wide in enumerate(widths) if wide > least[at]]
        if not able:
            return
        widest = max(able, key=lambda at: widths[at])
        next_one = max((widths[at] for at in able if at != widest), default=0)
        down_to = max(least[widest], min(next_one, widths[widest] - 1), widths[widest] - over)
        widths[widest] = down_to


def moment(stamp: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(stamp) if stamp else None
    except ValueError:
        return None


def age(stamp: str | None, now: datetime | None = None) -> str:
    """2026-01-01T00:00:00Z -> 5m, as kubectl rounds it."""
    began = moment(stamp)
    if began is None:
        return "-"
    seconds = max(0, int(((now or datetime.now(UTC)) - began).total_seconds()))
    for size, unit, most in ((1, "s", 120), (60, "m", 180), (3600, "h", 48)):
        if seconds < most * size:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def span(seconds: float) -> str:
    """Formats a duration as age() does."""
    end = datetime.fromtimestamp(max(0.0, seconds), UTC)
    return age("1970-01-01T00:00:00Z", end)


def clock(stamp: str | None) -> str:
    """Formats the time in the user's own time zone."""
    began = moment(stamp)
    return f"{began.astimezone():%Y-%m-%d %H:%M:%S%z}" if began else "-"


def wrapped(head: str, text: str, indent: int, most: int | None) -> str:
    """The head, then the text from column `indent` on, folded at the terminal's edge."""
    width = max((most or 10_000) - indent, 20)
    pad = "\n" + " " * indent
    return head.ljust(indent) + pad.join(map(printable, fold(text, width)))

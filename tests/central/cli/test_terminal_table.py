"""Tables against their rule, written plainly: which form fits, how wide the columns are, and what a terminal is
shown."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from central.cli import terminal_table
from central.cli.terminal_table import Cell, Column, Feed, Row, table

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
COLUMNS = (Column("node name", "node"), Column("GPUs", number=True), Column("uid", wide=True))
texts = st.text("ab \x1b", max_size=9).map(lambda text: f"x{text}x")
cells = st.builds(lambda whole, cut: Cell(whole, whole[: 1 + cut]), texts, st.integers(0, 3))
rows_of_three = st.lists(
    st.tuples(cells | texts, st.integers(0, 10**6), texts), min_size=1, max_size=4
)


def shown(rows: list[Row], *, wide: bool, short: bool) -> list[list[str]]:
    """The texts of every cell, the titles first."""
    titles = ["NODE" if short else "NODE NAME", "GPUS", "UID"]
    lines = [titles]
    for row in rows:
        said = [
            (each.short if short else each.whole) if isinstance(each, Cell) else str(each)
            for each in row
        ]
        lines.append([text.replace("\x1b", "?") for text in said])
    return [line if wide else line[:2] for line in lines]


def laid_out(lines: list[list[str]], gap: int) -> str:
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    text = ""
    for line in lines:
        padded = [
            each.rjust(width) if at == 1 else each.ljust(width)
            for at, (each, width) in enumerate(zip(line, widths, strict=True))
        ]
        text += (gap * " ").join(padded).rstrip() + "\n"
    return text


def width_of(lines: list[list[str]], gap: int) -> int:
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return sum(widths) + gap * (len(widths) - 1)


@given(
    rows=rows_of_three,
    wide=st.booleans(),
    form=st.sampled_from([None, (False, 2), (True, 2), (True, 1)]),
    less=st.integers(0, 1),
)
def test_the_widest_form_that_fits_is_shown(
    rows: list[Row], *, wide: bool, form: tuple[bool, int] | None, less: int
) -> None:
    """At the width of each form, and one column below."""
    whole, short = (shown(rows, wide=wide, short=each) for each in (False, True))
    most = None if form is None else width_of(short if form[0] else whole, form[1]) - less
    text = table(COLUMNS, rows, wide=wide, most=most)
    if most is None or wide or width_of(whole, 2) <= most:
        assert text == laid_out(whole, 2)
    elif width_of(short, 2) <= most:
        assert text == laid_out(short, 2)
    elif width_of(short, 1) <= most:
        assert text == laid_out(short, 1)
    else:
        assert max(map(len, text.splitlines())) <= most
        for row in shown(rows, wide=False, short=True)[1:]:
            assert row[1] in text  # numbers are never folded


@given(rows=rows_of_three, most=st.none() | st.integers(8, 40))
def test_rows_that_come_one_by_one(rows: list[Row], most: int | None) -> None:
    """The first row decides the form; columns only get wider."""
    feed = Feed(COLUMNS, wide=False, most=most)
    whole = shown(rows[:1], wide=False, short=False)
    short = most is not None and width_of(whole, 2) > most
    for number, row in enumerate(rows, 1):
        lines = shown(rows[:number], wide=False, short=short)
        laid = laid_out(lines, 1 if short else 2).splitlines(keepends=True)
        assert feed.add(row) == ("".join(laid) if number == 1 else laid[-1])


@pytest.mark.parametrize(
    ("columns", "width"),
    [("80", 80), ("1", 1), ("0", None), ("", None), ("-5", None), ("x", None), ("\u00b2", None)],
)
def test_the_width_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int | None
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_table.width() == width
    assert terminal_table.coloured() is False
    assert terminal_table.state("Failed") == "Failed"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (179 * 60 + 59, "179m"),
        (180 * 60, "3h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (3 * 86400 - 1, "2d"),
        (400 * 86400, "400d"),
    ],
)
def test_an_age(seconds: int, said: str) -> None:
    stamp = (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    assert terminal_table.age(stamp, NOW) == said


@pytest.mark.parametrize("stamp", [None, "", "yesterday"])
def test_a_time_that_is_none(stamp: str | None) -> None:
    assert terminal_table.age(stamp, NOW) == terminal_table.clock(stamp) == "-"
    assert terminal_table.moment(stamp) is None


def test_a_time_is_shown_in_the_users_zone() -> None:
    shown_as = datetime.strptime(
        terminal_table.clock("2026-01-01T00:00:00Z"), "%Y-%m-%d %H:%M:%S%z"
    )
    assert shown_as == datetime(2026, 1, 1, tzinfo=UTC)


@given(
    words=st.lists(st.text("abc", min_size=1, max_size=9), max_size=12),
    indent=st.integers(2, 30),
    most=st.none() | st.integers(10, 90),
)
def test_a_text_is_folded_beside_its_head(words: list[str], indent: int, most: int | None) -> None:
    lines = terminal_table.wrapped("H:", " ".join(words), indent, most).split("\n")
    assert " ".join(line[indent:] for line in lines).split() == words
    assert lines[0][:indent].rstrip() == "H:"
    assert all(line[:indent].strip() == "" for line in lines[1:])
    room = 10_000 if most is None else max(most - indent, 20)
    assert all(len(line) - indent <= room for line in lines)
    taken = [line[indent:] for line in lines]
    for line, following in itertools.pairwise(taken):
        assert len(line) + 1 + len(following.split()[0]) > room, "the next word had room"


@pytest.mark.parametrize("most", [1, 2, 3, 5, 9, 14, 20])
def test_a_column_without_a_title_and_an_empty_one_are_folded(most: int) -> None:
    columns = (Column(""), Column(""), Column("now", number=True))
    text = table(columns, [("", "a long/text", 10), ("", "b", 7)], wide=False, most=most)
    assert "".join(text.split()).replace("NOW", "").replace("10", "").replace("7", "") == (
        "along/textb"
    )
    assert max(map(len, text.splitlines())) <= max(most, 1 + 1 + 1 + 1 + 3)

"""Speeds by size and nodes."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from central.model.speed_table import SpeedTable, parse
from tests.own_time import own_time


def test_a_speed_between_two_sizes_is_interpolated_and_does_not_grow_above_the_last() -> None:
    table = parse("1:1 2:1.9 4:3.5")
    assert [table.at(size, 1) for size in (1, 2, 3, 4, 9)] == [1, 1.9, 2.7, 3.5, 3.5]
    assert table.at(0, 0) == 0


def test_a_size_on_several_nodes_has_a_speed_of_its_own() -> None:
    table = parse("1:1 4:3.6 2/2:1.1 4/2:2.1 4/4:1.5")
    assert [table.at(4, nodes) for nodes in (1, 2, 3, 4, 5)] == [3.6, 2.1, 2.1, 1.5, 1.5]
    assert table.at(3, 2) == pytest.approx(1.6)


def test_gpus_of_a_model_have_a_table_of_their_own() -> None:
    table = parse("1:1 2:1.9 A100=1:4 a100=2:7 *-T4=1:0.5 NVIDIA-A10=1:2 NVIDIA-A10=4:6")
    on_a100 = table.on({"NVIDIA A100-SXM4-80GB"})
    assert [on_a100.at(size, 1) for size in (1, 2, 3)] == [4, 7, 7]
    assert table.on({"Tesla-T4"}).at(1, 1) == 1, "T4 is its whole name"
    assert table.on({"GRID-T4"}).at(1, 1) == 0.5
    assert table.on({"NVIDIA-A10-24Q"}).at(4, 1) == 6, "A100 is another model"
    assert table.on({"H100"}) is table.on(()) is table


def test_on_gpus_of_several_models_a_job_is_as_fast_as_on_the_slowest() -> None:
    table = parse("1:1 2:2 A100=1:4 A100=2:7 L4=1:0.5 L4=2:0.9")
    assert table.on({"A100", "L4"}) == table.on({"L4"})
    assert table.on({"A100", "H100"}) is table, "of which the last has no entry"


def test_without_models_one_table_holds_on_all_gpus() -> None:
    table = parse("1:1 2:2")
    assert table.on({"A100"}) is table


def test_useful_sizes_are_faster_than_all_below() -> None:
    """Four on a node are faster than up to seven on two, as measured for large models."""
    table = parse("1:1 2/1:1.9 3/1:2.3 4/1:2.9 5/2:1.7 6/2:2.0 8/2:3.2 8/3:1 12/3:3.2")
    assert table.fastest(8) == 3.2
    assert table.useful(range(1, 13)) == (1, 2, 3, 4, 8)


@pytest.mark.parametrize(
    "text", ["", "1:1", "1:1 two:2", "1:1 2:0", "1:1 2:inf", "1:1 2:nan", "1:1 2:-1", "1:1 0:1"]
)
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"entries|is not MEMBERS"):
        parse(text)


@pytest.mark.parametrize("entry", [f"2:{'1' * 60}x", f"2:1.{'0' * 60}"])
def test_of_a_long_entry_the_first_forty_characters_are_named(entry: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f'"{entry[:40]}"')):
        parse(f"2:1 {entry}")


def test_a_size_that_stands_twice_is_named_and_the_number_of_entries_is_bounded() -> None:
    with pytest.raises(ValueError, match='"2:3": this size stands twice'):
        parse("1:1 2:2 2:3")
    with pytest.raises(ValueError, match="2001 entries"):
        parse(" ".join(f"{size}:1" for size in range(1, 2002)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"1:1 1{'0' * 400}:2", "is not MEMBERS"),  # no float has so many digits
        ("1:1 2/99999999:2", "is not MEMBERS"),
        ("1:1 2:1e300", "is not MEMBERS"),
        ("1:1 2:1e-300", "is not MEMBERS"),
        ("1:1 2_0:2", "is not MEMBERS"),
        ("1:1 ٢:2", "is not MEMBERS"),
        ("1:1 2/:2", "is not MEMBERS"),
        ("1:1" + " " * 40_000 + "2:2", "40006 characters"),
        ("1:1 =2:2", 'no GPU model before "="'),
        ("1:1 NVIDIA-=2:2", 'no GPU model before "="'),
        ("1:1 A100=", "is not MEMBERS"),
        ("1:1 A100=B=2:2", "is not MEMBERS"),
        ("1:1 A100=2:2 a100=2:3", 'a100=2:3": this size stands twice'),
        ("A100=1:1 A100=2:2", "every entry names a GPU model"),
        ("1:1 " + " ".join(f"G{number}=1:1" for number in range(17)), "17 different GPU models"),
        ("1:1 " + " ".join(f"G=1/{nodes}:1" for nodes in range(65)), "is not MEMBERS"),
        ("1:1 " + " ".join(f"G=1/{nodes}:1" for nodes in range(1, 66)), "65 different numbers"),
        (" ".join(f"1/{nodes}:1" for nodes in range(1, 66)), "65 different numbers of nodes"),
    ],
)
def test_numbers_and_lengths_are_bounded(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(text)


def test_the_largest_table_is_read_for_the_largest_job_in_a_moment() -> None:
    points = [
        (nodes, 1 + (number * 997 + nodes) % 100_000)
        for nodes in range(1, 65)
        for number in range(31)
    ]
    table = parse(" ".join(f"{size}/{nodes}:{size**0.5:.2f}" for nodes, size in points))
    with own_time() as spent:
        useful = table.useful(range(1, 100_001))
    assert spent.seconds < 1.0  # true: 0.03
    assert len(useful) > 1000


tables = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(1, 30)),
    st.floats(0.001, 1000.0),
    min_size=2,
    max_size=20,
).map(
    lambda found: parse(
        " ".join(
            f"{size}/{nodes}:{speed!r}" if nodes else f"{size}:{speed!r}"
            for (nodes, size), speed in found.items()
        )
    )
)


@pytest.mark.long
@given(tables, st.lists(st.tuples(st.integers(1, 40), st.integers(1, 7)), min_size=1))
def test_many_sizes_at_once_have_the_speeds_of_each(
    table: SpeedTable, pairs: list[tuple[int, int]]
) -> None:
    members, nodes = (np.array(each) for each in zip(*pairs, strict=True))
    assert table.at_each(members, nodes).tolist() == [table.at(*pair) for pair in pairs]


@pytest.mark.long
@given(tables)
def test_useful_is_what_one_finds_size_by_size(table: SpeedTable) -> None:
    found, best = [], 0.0
    for size in range(1, 41):
        known = [
            nodes
            for nodes, points in table.by_nodes
            if points[0][0] <= size or nodes == table.by_nodes[0][0]
        ]
        speed = max(table.at(size, nodes) for nodes in known)
        if speed > best:
            found.append(size)
            best = speed
    assert table.useful(range(1, 41)) == tuple(found)

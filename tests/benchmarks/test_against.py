"""Rows of two trees are compared by what is better: less time, or more pods a second."""

import sys

from tests.benchmarks import turns
from tests.benchmarks.against import ROOT, SHORT, compared, rows_of


def test_the_best_round_of_each_tree_counts() -> None:
    assert compared("gang", [2.0, 1.0], [3.0, 1.5], "ms") == ("gang", 1.0, 1.5, "ms", 1.5)


def test_more_in_a_second_is_better() -> None:
    assert compared("backlog", [50.0, 100.0], [200.0, 90.0], "pods/s")[1:] == (
        100.0,
        200.0,
        "pods/s",
        0.5,
    )


def test_a_tree_prints_values_with_or_without_units() -> None:
    said = '{"a": [1.5, "ms"], "b": {"value": 2.0, "unit": "pods/s"}, "c": 3.0}'
    found = rows_of(ROOT, (sys.executable, "-c", f"print({said!r})"))
    assert found == {"a": (1.5, "ms"), "b": (2.0, "pods/s"), "c": (3.0, "")}


def test_the_short_form_calls_functions_of_turns() -> None:
    assert all(callable(getattr(turns, value.partition("(")[0])) for value, _ in SHORT.values())

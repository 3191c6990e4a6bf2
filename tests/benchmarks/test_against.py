"""Rows of two trees are compared by what is better: less time, or more pods a second."""

from tests.benchmarks.against import compared


def test_the_best_round_of_each_tree_counts() -> None:
    assert compared("gang", [2.0, 1.0], [3.0, 1.5], "ms") == ("gang", 1.0, 1.5, "ms", 1.5)


def test_more_in_a_second_is_better() -> None:
    assert compared("backlog", [50.0, 100.0], [200.0, 90.0], "pods/s")[1:] == (
        100.0,
        200.0,
        "pods/s",
        0.5,
    )

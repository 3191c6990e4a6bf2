"""Columns of labels match pods' selectors and affinities as one node after the other does."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from central.model.facts import NodeSeen
from central.model.pod_rules import Requirement
from central.scheduler.filters import label_columns, node_filters
from central.scheduler.filters.filter_cache import FilterResults
from central.scheduler.filters.label_columns import LabelColumn, LabelColumns
from central.scheduler.inventory.nic_limits import NicCapacity
from central.scheduler.snapshot.snapshot import Snapshot
from protos.topology import RdmaLimit
from tests.central import factories

VALUES = ("a", "b", "3", "12", "")


def requirement(dice: Random) -> Requirement:
    operator = dice.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Unknown"))
    values = tuple(dice.sample((*VALUES, "n0", "n1"), dice.randint(0, 3)))
    field = dice.random() < 0.2
    return Requirement(
        "metadata.name" if field and dice.random() < 0.8 else dice.choice("xy"),
        operator,
        values,
        field,
    )


def a_node(dice: Random, row: int) -> NodeSeen | None:
    if dice.random() < 0.1:
        return None
    labels = {key: dice.choice(VALUES) for key in "xy" if dice.random() < 0.7}
    return factories.node(f"n{row}", labels=labels)


@pytest.mark.parametrize("seed", range(20))
def test_columns_match_as_node_after_node(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_columns, "KEYS_KEPT", 3)
    monkeypatch.setattr(label_columns, "VALUES_KEPT", 1)
    dice, columns = Random(seed), LabelColumns()
    nodes = [a_node(dice, row) for row in range(6)]
    version = np.zeros(len(nodes), dtype=np.int64)
    for _ in range(60):
        if dice.random() < 0.1:
            nodes.append(a_node(dice, len(nodes)))
            version = np.append(version, 0)
        row = dice.randrange(len(nodes))
        nodes[row] = a_node(dice, row)
        version[row] += 1
        selector = tuple((key, dice.choice(VALUES)) for key in "xy" if dice.random() < 0.3)
        terms = [
            tuple(requirement(dice) for _ in range(dice.randint(0, 2)))
            for _ in range(dice.randint(0, 2))
        ]
        spec = replace(
            factories.spec(1),
            node_selector=selector,
            node_terms=tuple(terms) if dice.random() < 0.8 else None,
        )
        rows = np.array(sorted(dice.sample(range(len(nodes)), 5)))
        found = columns.matches(spec, rows, nodes, version)
        for row, matches in zip(rows.tolist(), found.tolist(), strict=True):
            if (node := nodes[row]) is not None:
                assert matches == (not node_filters.affinity_mismatch(spec, node))


def test_only_one_filter_reads_what_the_columns_match() -> None:
    """Else classes that differ in these fields could not share the results of the other filters."""
    by_labels = {"node_selector", "node_terms"}
    readers = [f.refusal for f in node_filters.NODE_FILTERS if not by_labels.isdisjoint(f.reads)]
    assert readers == [node_filters.affinity_mismatch]


def test_classes_that_name_other_nodes_share_the_other_filters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results, filtered, real = FilterResults(), list[str](), node_filters.result

    def result(*args: object) -> node_filters.FilterResult:
        filtered.append(args[1].name)  # type: ignore[attr-defined]
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(node_filters, "result", result)
    nodes: list[NodeSeen | None] = [
        factories.node(f"n{row}", unschedulable=row == 1) for row in range(3)
    ]
    rows, version = np.arange(3), np.zeros(3, dtype=np.int64)
    for row in range(3):
        term = (Requirement("metadata.name", "In", (f"n{row}",), field=True),)
        cache = results.of(replace(factories.spec(1), node_terms=(term,)))
        cache.refresh(rows, nodes, version)
        assert cache.passed.tolist() == [each == row != 1 for each in range(3)]
    assert filtered == ["n0", "n1", "n2"]


def test_results_are_read_again_once_those_of_the_other_filters_begin_again() -> None:
    results = FilterResults()
    nodes: list[NodeSeen | None] = [factories.node("n0", labels={"x": "a"})]
    rows, version = np.arange(1), np.zeros(1, dtype=np.int64)
    one, other = (
        results.of(replace(factories.spec(1), node_selector=(("x", value),))) for value in "ab"
    )
    one.refresh(rows, nodes, version)
    nodes[0] = factories.node("n0", unschedulable=True, labels={"x": "a"})  # as after a bug
    other.reset()
    one.refresh(rows, nodes, version)
    assert not one.passed[0]


def test_values_that_no_node_has_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_columns, "VALUES_KEPT", 1)
    column, version = LabelColumn("x", field=False), np.zeros(1, dtype=np.int64)
    for value in range(20):
        version += 1
        column.refresh(np.arange(1), [factories.node("n0", labels={"x": f"v{value}"})], version)
        assert len(vars(column)["_numbers"]) <= 4
        assert column.matches(Requirement("x", "In", (f"v{value}",)), np.arange(1)).all()


def test_pods_with_nics_whose_selector_no_node_meets_fit_nowhere() -> None:
    made = Snapshot()
    row = made.put_node(factories.node("n0"))
    made.put_nics(row, NicCapacity({"mlx5_0": [1, 1, 1]}, RdmaLimit()))
    spec = replace(
        factories.spec(1), rdma_containers=(("main", 1),), node_selector=(("x", "nowhere"),)
    )
    assert made.view(spec).refresh().by_row.tolist() == [0] * len(made.columns.names)

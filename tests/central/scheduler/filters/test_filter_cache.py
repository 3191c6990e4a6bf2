"""Results of node filters are kept until the node changes, and not longer."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from central.model.facts import NodeSeen, PodSpec
from central.scheduler.filters import node_filters
from central.scheduler.filters.filter_cache import FilterResults
from central.scheduler.filters.node_filters import FilterResult
from tests.central import factories

OF_A = replace(factories.spec(1), node_selector=(("kind", "a"),))


def node(number: int, kind: str) -> NodeSeen:
    return factories.node(f"n{number}", labels={"kind": kind})


@pytest.fixture
def filtered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes that were filtered, one after the other."""
    names: list[str] = []
    real = node_filters.result

    def result(spec: PodSpec, node: NodeSeen, now: float) -> FilterResult:
        names.append(node.name)
        return real(spec, node, now)

    monkeypatch.setattr(node_filters, "result", result)
    return names


@pytest.mark.parametrize("seed", range(10))
def test_only_nodes_that_changed_are_filtered_again(filtered: list[str], seed: int) -> None:
    dice, cache = Random(seed), FilterResults().of(OF_A)
    nodes: list[NodeSeen | None] = []
    version = np.zeros(0, dtype=np.int64)
    known: dict[int, int] = {}  # by row: the version that was filtered last
    for _ in range(40):
        if dice.random() < 0.3:
            nodes.append(None)
            version = np.append(version, dice.randint(0, 3))
        for row in dice.sample(range(len(nodes)), min(len(nodes), dice.randint(0, 2))):
            nodes[row] = dice.choice((None, node(row, "a"), node(row, "b")))
            version[row] += 1
        rows = sorted(dice.sample(range(len(nodes)), dice.randint(0, len(nodes))))
        filtered.clear()
        if dice.random() < 0.1:
            cache.reset()
            known.clear()
        cache.refresh(np.array(rows, dtype=np.int64), nodes, version)
        changed = [row for row in rows if known.get(row) != version[row]]
        assert filtered == [seen.name for row in changed if (seen := nodes[row]) is not None]
        known |= {row: int(version[row]) for row in rows}
        for row in rows:
            seen = nodes[row]
            fits = seen is not None and seen.labels.get("kind") == "a"
            assert cache.passed[row] == cache.fits(row, nodes, version) == fits
        assert len(filtered) == len([row for row in changed if nodes[row] is not None])
        filtered.clear()
        others = sorted(set(range(min(len(nodes), len(cache.passed)))) - {*rows})
        for row in others:
            seen = nodes[row]
            fits = seen is not None and seen.labels.get("kind") == "a"
            again = known.get(row) != version[row] and seen is not None
            assert cache.fits(row, nodes, version) == fits
            assert len(filtered) == again
            filtered.clear()
            known[row] = int(version[row])


def test_a_filter_that_raises_keeps_the_node_out_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache, version = FilterResults().of(OF_A), np.zeros(1, dtype=np.int64)
    nodes: list[NodeSeen | None] = [node(0, "a")]
    row = np.array([0])

    def fails(spec: PodSpec, node: NodeSeen, now: float) -> FilterResult:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(node_filters, "result", fails)
        cache.refresh(row, nodes, version)
    failure = cache.failure
    assert isinstance(failure, ZeroDivisionError)
    assert not cache.passed[0]
    cache.reset()
    assert cache.failure is None
    cache.refresh(row, nodes, version)
    assert cache.passed[0]


def test_pods_that_no_filter_tells_apart_share_their_results() -> None:
    results = FilterResults()
    first = results.of(OF_A)
    assert results.of(replace(OF_A, requests=(("cpu", 5),))) is first
    assert results.of(replace(OF_A, node_selector=(("kind", "b"),))) is not first
    results.keep(3)  # with the results of the other filters, which the two share
    assert results.of(OF_A) is first
    results.keep(2)
    assert results.of(OF_A) is not first

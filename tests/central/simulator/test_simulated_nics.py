"""Network cards in a simulation: as agents offer them, and as limits bind them."""

import json

import pytest

from protos.names import RDMA, RDMA_HANDLES
from tests.central.simulator.manifests import Json, Simulate, node, pod


def with_nics(name: str, shares: int = 1, handles: str = "") -> Json:
    made = pod(name, runs="100s")
    made["spec"]["containers"][0]["resources"] = {"limits": {RDMA: shares}}
    if handles:
        made["metadata"].setdefault("annotations", {})[RDMA_HANDLES] = handles
    return made


def limited(handles: str) -> Json:
    made = node("a", capture="dgx-a100-8")
    made["metadata"].setdefault("annotations", {})[RDMA_HANDLES] = handles
    return made


def test_cards_of_a_capture_are_offered_as_agents_do(simulate: Simulate) -> None:
    told = simulate(node("a", capture="dgx-a100-8"), with_nics("one"), with_nics("many", 1000))
    assert [each["pod"] for each in told["placements"]] == ["one"]
    (waits,) = told["waiting"]
    assert f"can never start: no node has 1000 {RDMA}, the most is 128" in waits["reason"]
    told = simulate(node("a", capture="single-gpu"), with_nics("one"))
    assert not told["placements"]


def test_limits_bind_card_by_card(simulate: Simulate) -> None:
    """Eight cards of 64 handles have room for eight pods of 40, and not for 512 / 40."""
    pods = [with_nics(f"p{number}", handles="40") for number in range(9)]
    small = [with_nics(f"s{number}", handles="24") for number in range(8)]
    told = simulate(limited("64"), *pods, *small)
    placed = {each["pod"]: each["at_s"] for each in told["placements"]}
    assert [placed[f"p{number}"] for number in range(9)] == [*[0] * 8, 100]
    assert {placed[f"s{number}"] for number in range(8)} == {0}
    told = simulate(limited("39"), with_nics("one", handles="40"))
    assert "at most 39 RDMA handles" in told["waiting"][0]["reason"]
    told = simulate(node("a", capture="dgx-a100-8"), with_nics("one", handles="40"))
    assert "sets no RDMA limits" in told["waiting"][0]["reason"]


@pytest.mark.parametrize("odd", ["many", "-1", "0x40"])
def test_a_node_with_an_odd_limit(simulate: Simulate, odd: str) -> None:
    simulate.text(json.dumps(limited(odd)), code=2)
    assert f'{RDMA_HANDLES}: "{odd}" is neither a whole number nor max' in simulate.errors

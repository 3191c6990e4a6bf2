"""Shares of GPUs in a simulation."""

import pytest

from protos.names import GPU_MEMORY, GPU_MEMORY_LEVEL, GPU_SHARE
from tests.central.simulator.manifests import Json, Simulate, node, pod


def part(name: str, share: int, runs: str) -> Json:
    made = pod(name, runs=runs)
    made["spec"]["containers"][0]["resources"] = {"limits": {GPU_SHARE: share}}
    return made


@pytest.mark.parametrize("machine", [node("a", 8), node("a", capture="hgx-h100-8")])
def test_shares_fill_a_gpu_and_whole_ones_wait_for_it(simulate: Simulate, machine: Json) -> None:
    parts = [part(f"p{i}", share, "100s") for i, share in enumerate((30, 50, 20))]
    told = simulate(machine, *parts, pod("w", 8, runs="50s"))
    placed = {each["pod"]: each for each in told["placements"]}
    assert placed["p0"]["gpus"] == placed["p1"]["gpus"] == placed["p2"]["gpus"]
    assert placed["w"]["at_s"] >= 100
    assert not told["waiting"]
    # One of eight for 100 s, then all of them for 50 s.
    assert told["metrics"]["gpu_utilization"] == pytest.approx(500 / 1200, rel=0.01)


@pytest.mark.parametrize("capture", [{}, {"capture": "hgx-h100-8"}])
def test_a_pod_that_requires_enforced_caps_goes_where_they_hold(
    simulate: Simulate, capture: Json
) -> None:
    """A Node says how caps of its GPUs' memory hold, as its agent would."""
    plain, sure = node("a", 8, **capture), node("b", 8, **capture)
    sure["metadata"].setdefault("annotations", {})[GPU_MEMORY_LEVEL] = "mps"
    pods = [part("p", 30, "100s"), part("q", 30, "100s")]
    for made, level in zip(pods, ("mps", "kernel"), strict=True):
        made["metadata"].setdefault("annotations", {}).update(
            {GPU_MEMORY: "4Gi", GPU_MEMORY_LEVEL: level}
        )
    told = simulate(plain, sure, *pods)
    assert [(each["pod"], each["node"]) for each in told["placements"]] == [("p", "b")]
    (waits,) = told["waiting"]
    assert "1 node: GPU memory enforcement is mps" in waits["reason"]

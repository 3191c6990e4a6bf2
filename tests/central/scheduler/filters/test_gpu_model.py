"""A pod asks for a kind of GPU by what agents report of it."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, NodeReported, PodSeen, PodSpec
from central.scheduler.cycle import schedule_once
from central.scheduler.filters.gpu_model import mismatch
from central.scheduler.filters.node_filters import lasting_refusal
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"


def models(*patterns: str, memory: int = 0) -> PodSpec:
    return factories.spec(1, gpu_models=patterns, gpu_memory=memory)


@pytest.mark.parametrize(
    ("pattern", "model", "is_one"),
    [
        ("h100", H100, True),
        ("H100*", H100, True),
        ("nvidia h100", H100, True),
        ("NVIDIA-H100-80GB-HBM3", H100, True),
        ("h200", H100, False),
        ("*80gb*", H100, True),
        ("*80gb", H100, True),
        ("a10", A100, False),
        ("a10*", A100, True),
        ("a100-sxm4-40gb", A100, True),
        ("a100-*-80gb", A100, False),
        ("v100", "Tesla V100-SXM2-32GB", True),
        ("l4", "NVIDIA L40S", False),
        ("h[0-9]00", H100, False),
        ("", H100, False),
    ],
)
def test_a_pattern_is_a_name_or_how_it_begins(pattern: str, model: str, is_one: bool) -> None:
    node = replace(factories.node("a"), gpus=((model, 80 << 30),))
    assert (mismatch(models(pattern), node) == "") == is_one


def test_every_gpu_of_the_node_must_be_one() -> None:
    node = replace(factories.node("a"), gpus=((A100, 40 << 30), (H100, 80 << 30)))
    assert mismatch(models("h100"), node) == f"GPUs are {A100} and {H100}"
    assert not mismatch(models("h100", "a100"), node)
    assert mismatch(models(memory=60 << 30), node) == "GPUs have 40Gi of memory"
    assert not mismatch(models(memory=40 << 30), node)


def test_labels_count_where_no_agent_tells() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    node = factories.node("a", labels=labels)
    assert not mismatch(models("h100", memory=80_000_000_000), node)
    assert mismatch(models("a100"), node) == "GPUs are NVIDIA-H100-80GB-HBM3"
    told = replace(node, gpus=((A100, 40 << 30),))
    assert not mismatch(models("a100"), told)  # what the agent says goes before
    assert mismatch(models("h100"), factories.node("b")) == "GPU model unknown"


def test_memory_that_no_label_tells_may_be_enough() -> None:
    node = factories.node("a", labels={"amd.com/gpu.product-name": "AMD-Instinct-MI300X"})
    asks = models("amd-instinct-mi300x", memory=40 << 30)
    assert mismatch(asks, node) == "GPU memory unknown"
    assert not lasting_refusal(asks, node)
    assert lasting_refusal(models("h100", memory=40 << 30), node)
    assert not mismatch(models("amd-instinct-mi300x"), node)


def machine(name: str, model: str, generation: int = 1) -> NodeReported:
    plain = factories.topology(8)
    gpus = tuple(replace(gpu, model=model, memory_bytes=80 << 30) for gpu in plain.gpus)
    return factories.report(name, replace(plain, gpus=gpus), generation)


def wanting(name: str, *patterns: str, gang: str = "", gpus: int = 8) -> PodSeen:
    plain = factories.pod(name, gpus, gang)
    return replace(plain, spec=replace(plain.spec, gpu_models=patterns))


def test_a_gang_of_one_kind_goes_where_that_is_and_else_says_what_is_there() -> None:
    made = new_scheduler(factories.LEVELS)
    nodes: list[Fact] = [factories.node(name) for name in ("a", "b", "c")]
    nodes += [machine("a", H100), machine("b", A100), machine("c", H100)]
    gang: list[Fact] = [
        factories.gang("g", 2),
        *(wanting(f"g-{i}", "h100", gang="g") for i in range(2)),
    ]
    schedule_once(made, [*nodes, *gang, wanting("x", "a100"), wanting("y", "b200")], 0.0)
    check_invariants(made)
    assert {made.state.pods[f"uid-g-{i}"].node for i in range(2)} == {"a", "c"}
    assert made.state.pods["uid-x"].node == "b"
    reason = made.state.gangs["ns", "y", False].attempt.reason
    assert f"1 node: GPUs are {A100}; 2 nodes: GPUs are {H100}" in reason
    schedule_once(made, [factories.node("d"), machine("d", "NVIDIA B200")], 1.0)
    check_invariants(made)
    assert made.state.pods["uid-y"].node == "d"


def test_a_node_whose_gpus_were_exchanged_is_judged_anew() -> None:
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [factories.node("a"), machine("a", A100), wanting("x", "h100")], 0.0)
    assert not _home(made, "x")
    schedule_once(made, [machine("a", H100, 2)], 1.0)
    check_invariants(made)
    assert _home(made, "x") == "a"


def _home(made: Scheduler, name: str) -> str:
    return made.state.pods[f"uid-{name}"].node

"""Pod classes share filter results by the fields that the filters declare: no filter reads another."""

from dataclasses import replace
from math import isinf
from typing import Any

import pytest

from central.model.facts import NodeSeen, PodSpec, Taint, Toleration
from central.model.pod_rules import Requirement
from central.scheduler.filters.filter_cache import constraint
from central.scheduler.filters.node_filters import (
    NODE_FILTERS,
    NodeFilter,
    affinity_mismatch,
    refusal,
    result,
)

HAS_GPUS: tuple[tuple[str, int], ...] = (("NVIDIA H100", 80 << 30),)
NODES = [
    NodeSeen("plain", {}, {"cpu": 1}),
    NodeSeen("labelled", {"pool": "a", "zone": "z1"}, {"cpu": 1}),
    NodeSeen("down", {}, {"cpu": 1}, ready=False),
    NodeSeen("modern", {}, {"cpu": 1}, features=("A",)),
    NodeSeen("cordoned", {}, {"cpu": 1}, unschedulable=True),
    NodeSeen("tainted", {}, {"cpu": 1}, taints=(Taint("gpu", "yes", "NoSchedule"),)),
    NodeSeen(
        "slow", {}, {"cpu": 1}, taints=(Taint("lockstep.dev/slow-gpu", "", "PreferNoSchedule"),)
    ),
    NodeSeen("limits", {}, {"cpu": 1}, rdma_most=(("hca_handle", 10),)),
    NodeSeen("exclusive", {}, {"cpu": 1}, rdma_exclusive=True),
    NodeSeen("enforces", {}, {"cpu": 1}, memory_level="kernel", gpus=HAS_GPUS),
]
TERM = ((Requirement("zone", "In", ("z1",)),),)
PODS = [
    PodSpec((("cpu", 1),)),
    PodSpec((("cpu", 1),), node_selector=(("pool", "a"),)),
    PodSpec((("cpu", 1),), node_terms=TERM),
    PodSpec((("cpu", 1),), tolerations=(Toleration("", "Exists", "", ""),)),
    PodSpec((("cpu", 1),), rdma_containers=(("main", 1),)),
    PodSpec((("cpu", 1),), rdma_containers=(("main", 1),), on_host=True),
    PodSpec((("cpu", 1),), rdma_limits=(("hca_handle", 20),)),
    PodSpec((("cpu", 1),), memory_level="kernel"),
    PodSpec((("cpu", 1),), gpu_models=("A100",)),
    PodSpec((("cpu", 1),), features=("A",)),
    PodSpec((("cpu", 1),), full_speed=True),
    PodSpec((("cpu", 1),), gpu_memory=100 << 30),
]


class Recording:
    """A PodSpec that notes which of its fields are read."""

    def __init__(self, spec: PodSpec) -> None:
        self._spec = spec
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self._spec, name)


def ask(each: NodeFilter, recording: Any, node: NodeSeen) -> None:
    each.refusal(recording, node)
    if each.period is not None:
        each.period(recording, node)


def reads_more_than_it_declares(each: NodeFilter) -> set[str]:
    more: set[str] = set()
    for spec in PODS:
        for node in NODES:
            recording = Recording(spec)
            ask(each, recording, node)
            more |= recording.read - set(each.reads)
    return more


@pytest.mark.parametrize("each", NODE_FILTERS, ids=lambda each: each.refusal.__name__)
def test_a_filter_reads_only_what_it_declares(each: NodeFilter) -> None:
    assert reads_more_than_it_declares(each) == set()


def test_only_one_filter_reads_the_nodes_that_a_pod_names() -> None:
    named = {"node_selector", "node_terms"}
    assert [each.refusal for each in NODE_FILTERS if named & {*each.reads}] == [affinity_mismatch]


def test_an_undeclared_field_is_found() -> None:
    sly = NodeFilter(lambda spec, node: str(spec.gpu_memory), ("tolerations",))
    assert reads_more_than_it_declares(sly) == {"gpu_memory"}


def test_each_declared_field_is_read() -> None:
    """Else pod classes would be kept apart in vain."""
    for each in NODE_FILTERS:
        read: set[str] = set()
        for spec in PODS:
            for node in NODES:
                recording = Recording(spec)
                ask(each, recording, node)
                read |= recording.read
        assert read == set(each.reads)


def test_equal_keys_give_equal_answers() -> None:
    for spec in PODS:
        other = replace(spec, requests=(("cpu", 7), ("pods", 1)), unsupported="x")
        assert constraint(other) == constraint(spec)
        for now in (0.0, 1e9, 2e9):
            found = [result(each, node, now) for each in (spec, other) for node in NODES]
            assert found[: len(NODES)] == found[len(NODES) :]


def test_every_filter_refuses_something_here() -> None:
    for each in NODE_FILTERS:
        assert any(each.refusal(spec, node) for spec in PODS for node in NODES), each


@pytest.mark.parametrize("each", [each for each in NODE_FILTERS if each.period is not None])
def test_a_refusal_with_a_period_begins_and_ends_with_it(each: NodeFilter) -> None:
    """A pod that others refuse is not looked at."""
    seen = set()
    for spec in PODS:
        for node in NODES:
            assert each.period is not None
            why, (begin, end) = each.refusal(spec, node), each.period(spec, node)
            for at, holds in ((begin, True), (end, False)):
                if not why or isinf(at) or refusal(spec, node, at) not in ("", why):
                    continue
                before = result(spec, node, at - 1)
                assert (before.refusal == why, refusal(spec, node, at) == why) == (not holds, holds)
                assert before.until == at
                seen.add(at)
    assert seen, "add a pod and a node for it"

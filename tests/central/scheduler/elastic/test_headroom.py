"""What surplus leaves free for services (--elastic-headroom)."""

import pytest

from tests.central.scheduler.elastic.test_autoscaler import (
    elastic,
    machine,
    priority,
    queue,
    rigid,
    sizes,
)
from tests.experiments.elastic import simulate


def test_growth_leaves_the_headroom_free() -> None:
    nodes = [machine(0), machine(1)]  # 16 CPUs
    assert sizes(simulate([*nodes, elastic("x")], 1000), "x") == [16]
    assert sizes(simulate([*nodes, elastic("x")], 1000, headroom=0.25), "x") == [12]
    assert sizes(simulate([*nodes, elastic("x")], 1000, headroom=0.26), "x") == [11]


@pytest.mark.long
def test_part_of_a_gpu_keeps_a_whole_one_free() -> None:
    node = machine(0, 64)
    node["status"]["allocatable"]["nvidia.com/gpu"] = "8"
    job = elastic("x")
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    assert sizes(simulate([node, job], 1000, headroom=0.3), "x") == [5]  # of 8, 2.4 stay free


def test_the_headroom_is_of_the_nodes_that_the_members_may_use() -> None:
    """Not of those of others."""
    far = machine(1, 80, pool="far")
    near = machine(0, 8, pool="near")
    job = elastic("x")
    pod = job["spec"]["tasks"][0]["template"]["spec"]
    pod["nodeSelector"] = {"lockstep.dev/pool": "near"}
    assert sizes(simulate([near, far, job], 1000, headroom=0.25), "x") == [6]


def test_least_sizes_and_other_gangs_use_the_headroom() -> None:
    run = simulate([machine(0), elastic("x", least=7), rigid("r", 1, 0.0)], 1000, headroom=0.5)
    assert sizes(run, "x", "r") == [7, 1]


def test_a_service_starts_at_once_and_the_headroom_comes_back() -> None:
    service = rigid("service", 2, 500.0, priorityClassName="high")
    run = simulate([machine(0), priority("high", 9), elastic("x"), service], 1000, headroom=0.25)
    assert sizes(run, "x", "service", at_s=499.0) == [6, 0]
    assert sizes(run, "x", "service", at_s=501.0) == [6, 2]  # nobody had to leave before
    assert sizes(run, "x", "service") == [4, 2]


def test_two_queues_share_what_is_left() -> None:
    jobs = [elastic("x", queue="a"), elastic("y", queue="b")]
    run = simulate([machine(0), queue("a"), queue("b"), *jobs], 1000, headroom=0.25)
    assert sizes(run, "x", "y") == [3, 3]

"""Sizes of elastic Jobs in a simulated cluster: queues, priorities, needs of others, place."""

from typing import Any

from tests.experiments.elastic import Json, Run, simulate, template


def machine(index: int, cpu: int = 8, **labels: str) -> Json:
    marks = {f"lockstep.dev/{key}": value for key, value in labels.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n{index}", "labels": marks},
        "status": {"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "50"}},
    }


def elastic(name: str, least: int = 1, most: int = 16, at_s: float = 0.0, **spec: Any) -> Json:
    """Its members have 1 CPU each, and a change costs a second."""
    notes = {
        "lockstep.dev/arrives-at": f"{at_s:g}s",
        "lockstep.dev/resize-cost": "1s",
        **spec.pop("annotations", {}),
    }
    task = {
        "name": "w",
        "replicas": most,
        "minAvailable": least,
        "template": template(1.0, "1Gi", 2.0),
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "annotations": notes},
        "spec": {
            "schedulerName": "lockstep",
            "plugins": {"elastic": spec.pop("arguments", ["--hold=10s"])},
            "tasks": [task],
            **spec,
        },
    }


def rigid(name: str, pods: int, at_s: float, **spec: Any) -> Json:
    job = elastic(name, pods, pods, at_s, **spec)
    del job["spec"]["plugins"]
    return job


def queue(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def priority(name: str, value: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def sizes(run: Run, *names: str, at_s: float = 1e9) -> list[int]:
    return [run.pods(f"default/{name}", at_s) for name in names]


def test_queues_share_by_weight() -> None:
    run = simulate(
        [
            machine(0, 16),
            queue("a", weight=1),
            queue("b", weight=3),
            elastic("x", queue="a"),
            elastic("y", queue="b"),
        ],
        1000,
    )
    assert sizes(run, "x", "y") == [4, 12]


def test_who_names_a_larger_most_gets_no_more() -> None:
    """The first ran with all seats before the second came, which names ten thousand members."""
    story = [
        machine(0, 32),
        machine(1, 32),
        queue("a", weight=1),
        elastic("modest", 2, 64, queue="a"),
    ]
    run = simulate([*story, elastic("greedy", 1, 10_000, 100.0, queue="a")], 2000)
    assert sizes(run, "modest", at_s=99) == [64]
    assert sizes(run, "modest", "greedy") == [33, 31]


def test_many_jobs_of_a_namespace_share_what_one_of_another_has() -> None:
    many = [elastic(f"m{number}", queue="a") for number in range(5)]
    for job in many:
        job["metadata"]["namespace"] = "other"
    run = simulate([machine(0, 26), queue("a", weight=1), elastic("one", queue="a"), *many], 1000)
    assert sizes(run, "one") == [11]
    assert sum(run.pods(f"other/m{number}", 1e9) for number in range(5)) == 15


def test_a_capability_bounds_growth() -> None:
    limited = queue("a", weight=1, capability={"cpu": "5"})
    run = simulate([machine(0), limited, elastic("x", queue="a")], 1000)
    assert sizes(run, "x") == [5]


def test_a_higher_priority_has_what_it_can_use() -> None:
    run = simulate(
        [
            machine(0),
            priority("high", 9),
            elastic("low"),
            elastic("high", most=6, priorityClassName="high"),
        ],
        1000,
    )
    assert sizes(run, "low", "high") == [2, 6]


def test_fill_serves_the_first_in_line() -> None:
    first, second = (elastic(name, most=6, arguments=["--objective=fill"]) for name in "ab")
    assert sizes(simulate([machine(0), first, second], 1000), "a", "b") == [6, 2]


def test_a_pending_gang_of_equal_priority_takes_surplus_and_no_more() -> None:
    run = simulate([machine(0), elastic("e", least=3), rigid("r", 4, 100)], 1000)
    assert sizes(run, "e", "r", at_s=99) == [8, 0]
    assert sizes(run, "e", "r", at_s=103) == [4, 4]
    assert not run.result.evicted


def test_nobody_shrinks_below_the_least_size() -> None:
    run = simulate([machine(0), elastic("e", least=5), rigid("r", 4, 100)], 1000)
    assert sizes(run, "e", "r") == [8, 0]
    assert not run.result.evicted
    assert len(run.result.resized) == 2, "nothing leaves in vain"


def test_a_lower_priority_takes_none() -> None:
    story = [
        machine(0),
        priority("high", 9),
        elastic("e", priorityClassName="high"),
        rigid("r", 4, 100),
    ]
    assert sizes(simulate(story, 1000), "e", "r") == [8, 0]


def test_a_job_that_does_not_yield_keeps_its_surplus() -> None:
    keeps = elastic("e", annotations={"lockstep.dev/yields": "false"})
    run = simulate([machine(0), keeps, rigid("r", 4, 100)], 1000)
    assert sizes(run, "e", "r") == [8, 0]


def test_a_queue_below_its_share_takes_surplus_of_another() -> None:
    run = simulate(
        [
            machine(0),
            queue("a", weight=1, reclaimable=True),
            queue("b", weight=1, reclaimable=True),
            elastic("e", queue="a"),
            rigid("r", 3, 100, queue="b"),
        ],
        1000,
    )
    assert sizes(run, "e", "r") == [5, 3]
    assert not run.result.evicted


def test_what_a_gang_frees_when_it_ends_is_taken_again() -> None:
    gone = rigid("r", 4, 100)
    gone["metadata"]["annotations"]["lockstep.dev/leaves-at"] = "500s"
    run = simulate([machine(0), elastic("e", least=2), gone], 1000)
    assert sizes(run, "e", at_s=499) == [4]
    assert sizes(run, "e") == [8]


def test_whole_steps() -> None:
    job = elastic("e", least=2, most=14, arguments=["--step=4", "--hold=10s"])
    run = simulate([machine(0), job, rigid("r", 1, 100)], 1000)
    assert sizes(run, "e", at_s=99) == [6]
    assert sizes(run, "e", "r") == [6, 1]
    run = simulate([machine(0), job, rigid("r", 3, 100)], 1000)
    assert sizes(run, "e", "r") == [2, 3]


def test_growth_does_not_cross_the_required_level() -> None:
    racks = [machine(0, rack="r1"), machine(1, rack="r1"), machine(2, rack="r2")]
    near = elastic(
        "e", least=9, most=20, annotations={"lockstep.dev/topology-required": "lockstep.dev/rack"}
    )
    run = simulate([*racks, near], 1000, levels=("lockstep.dev/rack",))
    assert sizes(run, "e") == [16]


def test_an_even_share_frees_a_whole_rack() -> None:
    racks = [machine(index, 4, rack=f"r{index // 2}") for index in range(4)]
    story = [*racks, elastic("e", least=4), elastic("f", least=4, at_s=100)]
    run = simulate(story, 1000, levels=("lockstep.dev/rack",))
    assert sizes(run, "e", "f") == [8, 8]
    nodes = {placed.node for placed in run.result.placed if placed.pod.startswith("f-")}
    assert nodes in ({"n0", "n1"}, {"n2", "n3"})

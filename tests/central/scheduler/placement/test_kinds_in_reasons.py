"""Reasons of gangs with several kinds of pods name the kind that they speak of."""

from dataclasses import replace

from central.model.facts import PodSeen, PodSpec, Toleration
from central.scheduler.placement import pod_kinds
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World

KEPT = (Toleration("job", "Exists", "", ""),)


def gang(*specs: PodSpec) -> list[PodSeen]:
    pods = [factories.pod(f"g-{i}", gang="g") for i in range(len(specs))]
    return [replace(pod, spec=spec) for pod, spec in zip(pods, specs, strict=True)]


def reason(*specs: PodSpec, nodes: int = 1) -> str:
    world = World(*(factories.node(f"n{i}", cpu=4_000) for i in range(nodes)))
    world.step(1.0, factories.gang("g", len(specs)), *gang(*specs))
    return world.told["g"]


def test_the_kind_that_does_not_fit_is_named() -> None:
    small, large = factories.spec(2), factories.spec(8)
    said = reason(small, large, large)
    assert said.startswith("needs 1 pod x 2 GPUs and 2 pods x 8 GPUs; the cluster fits 1 of 2 pods")
    assert "fits 1 of 2 pods x 8 GPUs (8 of 8 GPUs free on 1 node); can never start" in said


def test_one_kind_needs_no_name() -> None:
    assert "; the cluster fits 1 of 2 (" in reason(factories.spec(8), factories.spec(8))


def test_kinds_with_equal_devices_are_told_apart_by_what_else_they_request() -> None:
    said = reason(factories.spec(1, cpu=1_000), factories.spec(1, cpu=3_500))
    assert said.startswith("needs 1 pod x 1 GPU + 1 cpu and 1 pod x 1 GPU + 3.5 cpu; ")


def test_kinds_without_devices_are_told_apart_too() -> None:
    groups = ((factories.spec(cpu=500), 1), (factories.spec(cpu=2_000), 2))
    assert pod_kinds.describe(groups) == "needs 1 pod x 0.5 cpu and 2 pods x 2 cpu"


def test_kinds_that_request_the_same_are_told_apart_by_another_part_of_their_specs() -> None:
    plain = factories.spec(1)
    kept = replace(plain, tolerations=KEPT)
    here = replace(plain, node_selector=(("rack", "r1"),))
    there = replace(plain, node_selector=(("rack", "r2"),))
    assert pod_kinds.kinds(((plain, 1), (kept, 2), (here, 1), (there, 1))) == [
        "pod x 1 GPU",
        "pods x 1 GPU with another list of tolerations",
        "pod x 1 GPU with a third node selector",
        "pod x 1 GPU with a fourth node selector",
    ]
    assert pod_kinds.kinds(((plain, 2), (factories.spec(2), 1))) == ["pods x 1 GPU", "pod x 2 GPUs"]


def test_at_most_three_resources_tell_kinds_apart() -> None:
    many = tuple((f"example.com/{name}", 1) for name in "abcd")
    some = PodSpec((("cpu", 100), *many, ("pods", 1)))
    rest = PodSpec((("cpu", 100), ("pods", 1)))
    words = "x 1 example.com/a + 1 example.com/b + 1 example.com/c"
    assert pod_kinds.kinds(((some, 1), (rest, 1))) == [f"pod {words}", "pod"]


def test_the_kind_that_no_node_may_run_is_named() -> None:
    anywhere, nowhere = factories.spec(1), replace(factories.spec(2), node_selector=(("a", "b"),))
    said = reason(anywhere, nowhere, nowhere)
    assert (
        "can never start: no node may run the 2 pods x 2 GPUs (1 node: node selector a=b); no node has label a"
        in said
    )


def test_a_pod_that_no_node_is_large_enough_for() -> None:
    odd = PodSpec((("cpu", 5_000), (GPU, 8), ("pods", 1)), gpu_containers=(("main", 8),))
    said = reason(factories.spec(1), odd)
    assert "can never start: no node has 5 cpu, the most is 4" in said


def test_a_kind_that_each_resource_of_fits_some_node() -> None:
    world = World(factories.node("cpu", gpus=0, cpu=8_000), factories.node("gpus", cpu=1_000))
    pods = gang(factories.spec(1), factories.spec(8, cpu=4_000))
    world.step(1.0, factories.gang("g", 2), *pods)
    never = "can never start: no node has all that one of the 1 pod x 8 GPUs requests"
    assert world.told["g"].endswith(f"{never}; gpus has 1 of 4 cpu")

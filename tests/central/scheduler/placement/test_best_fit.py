"""Among equally close domains, and among equal nodes, the one with the least left free takes the pods.
The names speak against it, because they decide last."""

from central.model.facts import Fact
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job


def nodes_of(world: World) -> set[str]:
    return {pod.node for pod in world.running.values()}


def rack(name: str, *nodes: str) -> list[Fact]:
    return [factories.node(node, rack=name) for node in nodes]


def test_equal_pods_take_the_rack_with_the_least_left() -> None:
    world = World(*rack("r1", "a", "b", "c"), *rack("r2", "d", "e"))
    world.step(1.0, *job("g", 2))
    assert nodes_of(world) == {"d", "e"}


def test_unlike_pods_take_the_rack_with_the_least_left() -> None:
    """So many larger racks that this one must be among the few that are tried."""
    larger = [rack(f"r{i:02}", *(f"n{i:02}-{j}" for j in range(3))) for i in range(70)]
    world = World(*(node for each in larger for node in each), *rack("r99", "y", "z"))
    unlike = [factories.pod("g-0", 8, "g"), factories.pod("g-1", 6, "g")]
    world.step(1.0, factories.gang("g", 2), *unlike)
    assert nodes_of(world) == {"y", "z"}


def test_a_pod_takes_the_fullest_of_nodes_with_equal_gpus() -> None:
    world = World(factories.node("a", cpu=64_000), factories.node("b", cpu=4_000))
    world.step(1.0, factories.pod("p", 1, cpu=1_000))
    assert nodes_of(world) == {"b"}

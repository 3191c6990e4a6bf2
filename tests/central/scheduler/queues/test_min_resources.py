"""minResources: a gang starts only if what its later pods will ask for can be had too, and keeps it."""

from dataclasses import replace

from central.model.facts import Fact, GangGone, PodGone, QueueSeen
from central.scheduler.queues.min_resources import MinResources
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

NODE = factories.node("a", gpus=0, cpu=8_000)


def spark(name: str, cpu: int = 5_000, **fields: object) -> list[Fact]:
    """A driver that will make its executors; cpu: of all together."""
    group = factories.gang(name, 1, min_resources=(("cpu", cpu),), **fields)
    return [group, factories.pod(f"{name}-driver-0", 0, name, cpu=1_000)]


def executor(name: str, number: int, cpu: int = 2_000) -> Fact:
    return factories.pod(f"{name}-executor-{number}", 0, name, cpu=cpu)


def test_no_driver_starts_whose_executors_would_find_no_room() -> None:
    world = World(NODE)
    bound = world.step(1.0, *spark("one", created=1.0), *spark("two", created=2.0))
    assert bound == ["one-driver-0"]
    assert world.told["two"] == (
        "needs 5 cpu (spec.minResources; its first pods request 1); the cluster has 7 free, of "
        "which 4 are reserved for ns/one (minResources)"
    )
    assert world.step(2.0, executor("one", 1), executor("one", 2)) == [
        "one-executor-1",
        "one-executor-2",
    ]
    assert not world.cluster.min_resources.by_gang


def test_what_is_promised_is_kept_from_everybody_of_its_priority() -> None:
    world = World(NODE)
    world.step(1.0, *spark("one"))
    assert world.step(
        2.0, *job("small", 4, gpus=0, created=9.0), factories.pod("p", cpu=4_000)
    ) == [f"small-{i}" for i in range(4)]
    assert world.told["p"].endswith("of which 4 are reserved for ns/one (minResources)")
    assert world.step(3.0, factories.pod("q", cpu=4_000, priority=5)) == ["q"], "it is more urgent"


def test_it_is_free_again_when_the_gang_is_over() -> None:
    world = World(NODE)
    world.step(1.0, *spark("one"), factories.pod("p", cpu=6_000, created=5.0))
    assert "p" not in world.began
    driver = world.running["uid-one-driver-0"]
    world.step(9.0, replace(driver, phase="Succeeded"))
    assert "p" in world.began


def test_it_is_free_again_when_the_group_is_gone() -> None:
    world = World(NODE)
    world.step(1.0, *spark("one"), factories.pod("p", cpu=6_000, created=5.0))
    world.step(2.0, GangGone("ns", "one"))
    assert "p" in world.began
    world.step(3.0, *spark("two", created=1.0))
    world.step(4.0, PodGone("uid-p"))
    assert "two" in world.began


def test_what_no_node_has_is_waited_for() -> None:
    world = World(NODE)
    group = factories.gang("odd", 1, min_resources=(("example.com/fpga", 2),))
    world.step(1.0, group, factories.pod("odd-0", 0, "odd"))
    assert world.told["odd"] == (
        "needs 2 example.com/fpga (spec.minResources); the cluster has 0 free"
    )


def test_minimums_that_are_all_of_its_pods_change_nothing() -> None:
    world = World(NODE)
    group = factories.gang("g", 2, min_resources=(("cpu", 2_000), ("pods", 2)))
    pods = [factories.pod(f"g-{i}", 0, "g", cpu=1_000) for i in range(2)]
    assert world.step(1.0, group, *pods) == ["g-0", "g-1"]
    assert not world.cluster.min_resources.by_gang


def test_a_gang_that_is_gone_at_once_is_owed_nothing() -> None:
    world = World(NODE)
    world.step(1.0, *spark("one"), factories.pod("p", cpu=6_000, created=5.0))
    world.step(2.0, GangGone("ns", "one"), PodGone("uid-one-driver-0"))
    assert "p" in world.began


def test_a_queue_promises_no_more_than_it_may_use() -> None:
    """Else its drivers alone would use it up."""
    org = QueueSeen("org", capability=(("cpu", 7_000),))
    world = World(factories.node("a", gpus=0, cpu=64_000), org, QueueSeen("q", parent="org"))
    facts = [*spark("one", created=1.0, queue="q"), *spark("two", created=2.0, queue="q")]
    assert world.step(1.0, *facts) == ["one-driver-0"]
    assert world.told["two"] == (
        "queue org (above q) uses 1 of its capability of 7 cpu, 4 are reserved (minResources); "
        "5 more are needed"
    )
    assert world.step(2.0, executor("one", 1), executor("one", 2)) == [
        "one-executor-1",
        "one-executor-2",
    ]
    ended = [
        replace(world.running[uid], phase="Succeeded")
        for uid in list(world.running)
        if "one" in uid
    ]
    assert world.step(9.0, *ended) == ["two-driver-0"]


def test_it_is_free_again_when_the_group_asks_for_less() -> None:
    world = World(NODE)
    world.step(1.0, *spark("one"), factories.pod("p", cpu=6_000, created=5.0))
    assert "p" not in world.began
    world.step(2.0, *spark("one", cpu=1_000)[:1])
    assert "p" in world.began


def test_it_reserves_nothing_of_what_it_does_not_name() -> None:
    queue = QueueSeen("q", capability=((GPU, 8),))
    world = World(factories.node("a", gpus=8), queue)
    world.step(1.0, *spark("one", queue="q"))
    assert world.cluster.min_resources.by_gang
    assert world.step(2.0, *job("eight", 1, queue="q")) == ["eight-0"]


def test_only_the_end_of_a_reservation_is_news() -> None:
    """Others are tried again then, and only then."""
    world = World(NODE, *spark("one"))
    gang = next(iter(world.cluster.state.gangs.values()))
    kept = MinResources()
    assert not kept.update(gang)
    assert not kept.update(gang), "it still reserves"
    assert kept.forget(gang.key)
    assert not kept.forget(gang.key), "it reserved nothing any more"
    assert not kept.update(gang)
    assert gang.object is not None
    gang.object = replace(gang.object, min_resources=())
    assert kept.update(gang)
    assert not kept.update(gang)


def test_one_unit_that_no_pod_has_taken_yet_is_reserved() -> None:
    world = World(factories.node("a", gpus=1))
    group = factories.gang("one", 1, min_resources=((GPU, 1),))
    world.step(1.0, group, factories.pod("one-driver-0", 0, "one"))
    world.step(2.0, *job("other", 1, gpus=1, created=2.0))
    assert "one are reserved" not in world.told["other"]
    assert "reserved for ns/one (minResources)" in world.told["other"]


def test_later_pods_of_a_gang_that_has_started_need_only_what_they_request() -> None:
    world = World(NODE)
    world.step(1.0, *spark("one", cpu=7_000), *job("urgent", 1, gpus=0, priority=9, created=2.0))
    world.step(2.0, factories.pod("high", cpu=3_000, created=3.0, priority=9))
    assert "high" in world.began
    assert world.step(3.0, executor("one", 1)) == ["one-executor-1"]


def test_a_node_with_more_than_it_has_takes_nothing_from_the_others() -> None:
    """Its allocatable amounts have shrunk while pods ran on it."""
    world = World(NODE, factories.node("b", gpus=0, cpu=8_000))
    world.step(1.0, factories.pod("p", cpu=8_000, node="b", phase="Running"))
    world.step(2.0, factories.node("b", gpus=0, cpu=2_000))
    assert world.step(3.0, *spark("one")) == ["one-driver-0"]

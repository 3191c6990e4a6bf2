"""A gang that needs little waits a while before much is reclaimed for it."""

from central.model.facts import Fact, QueueSeen
from central.scheduler.cycle import due
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

QUEUES: tuple[Fact, ...] = (QueueSeen("a"), QueueSeen("b", deserved=((GPU, 8),)))
WAIT_S = 300.0
CREATED = 10.0


def world_with_a_large_gang(least: int = 2, **terms: float) -> World:
    """Sixteen GPUs, of which queue a uses all; b deserves eight and uses none."""
    terms = {"large_claim": 16, "large_claim_wait_s": WAIT_S, **terms}
    world = World(factories.node("n0"), factories.node("n1"), **terms)
    world.step(1.0, *QUEUES, *job("large", 2, 8, least=least, queue="a"))
    return world


def asks(world: World, gpus: int, now: float = CREATED, queue: str = "b", **other: object) -> None:
    world.step(now, *job("small", 1, gpus, queue=queue, created=CREATED, **other))  # type: ignore[arg-type]


def test_a_small_gang_waits_before_sixteen_times_as_much_is_evicted() -> None:
    world = world_with_a_large_gang()
    asks(world, 1)
    said = "its victims hold 16 times what it needs or more: these are evicted once it has waited for 5 min"
    assert world.told["small"].endswith(said)
    world.step(CREATED + WAIT_S - 0.1)
    assert world.evicted == []
    assert due(world.cluster, CREATED + WAIT_S - 0.1) == CREATED + WAIT_S
    world.step(CREATED + WAIT_S)
    assert world.evicted == ["large-0", "large-1"]


def test_it_takes_what_ends_in_the_meantime() -> None:
    world = world_with_a_large_gang()
    asks(world, 1)
    world.ends = dict.fromkeys(("uid-large-0", "uid-large-1"), 100.0)
    assert world.step(100.0) == ["small-0"]
    assert world.evicted == []


def test_a_gang_of_an_eighth_does_not_wait() -> None:
    world = world_with_a_large_gang()
    asks(world, 2)
    assert world.evicted == ["large-0", "large-1"]


def test_the_ratio_is_a_setting() -> None:
    world = world_with_a_large_gang(large_claim=17)
    asks(world, 1)
    assert world.evicted == ["large-0", "large-1"]
    never = world_with_a_large_gang(large_claim=0)
    asks(never, 1)
    assert never.evicted == ["large-0", "large-1"]


def test_surplus_alone_is_no_large_claim() -> None:
    world = world_with_a_large_gang(least=1)
    asks(world, 1)
    assert len(world.evicted) == 1


def test_a_gang_that_has_waited_longer_for_something_else_does_not_wait_again() -> None:
    world = world_with_a_large_gang()
    asks(world, 1, now=CREATED + WAIT_S)
    assert world.evicted == ["large-0", "large-1"]


def test_priority_in_its_own_queue_does_not_wait() -> None:
    world = world_with_a_large_gang()
    asks(world, 1, queue="a", priority=5)
    assert world.evicted == ["large-0", "large-1"]


def test_pods_without_requests_do_not_wait_for_victims_of_their_queue() -> None:
    """On a node for one pod: sixteen times nothing is not much."""
    world = World(factories.node("n0", pods=1), large_claim=16, large_claim_wait_s=WAIT_S)
    world.step(1.0, factories.pod("low", cpu=0))
    world.step(CREATED, factories.pod("high", cpu=0, priority=10, created=CREATED))
    assert world.evicted == ["low"]


def test_a_gang_that_has_waited_does_not_wait_again_behind_a_newer_equal_one() -> None:
    """The newer one is shorter, so it comes first behind the head of the queue, and is refused."""
    world = world_with_a_large_gang()
    huge = job("huge", 4, 8, queue="b", created=CREATED)
    old = job("old", 1, 1, 7200.0, queue="b", created=CREATED + 1)
    world.step(CREATED + 1, *huge, *old)
    assert not world.evicted
    now = CREATED + 1 + WAIT_S
    world.step(now, *job("new", 1, 1, 60.0, queue="b", created=now))
    assert world.evicted == ["large-0", "large-1"]
    assert "evicted once" not in world.told["old"]

"""Situations of sixty_pending.md in which a queue, a share or a rule about victims stops a gang. As in
situations_on_nodes.py."""

from collections.abc import Iterator
from typing import Any

from central.model.json_types import Json
from tests.central.scheduler.pending.pending_world import (
    PendingWorld,
    gang,
    node,
    pod,
    priority_class,
    queue,
)

Story = Iterator[str]
FOUR = [node(f"n{i}") for i in range(4)]


def typing_error_in_the_name(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("research"), *gang("train", 1, queue="reserch"))
    yield "train"
    world.apply(*gang("train", 1, queue="research"))


def typing_error_in_default(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("research"), *gang("train", 1, queue="defualt"))
    yield "train"
    world.apply(*gang("train", 1, queue="default"))


def queue_without_any_queue_objects(world: PendingWorld) -> Story:
    world.apply(*FOUR, *gang("train", 1, queue="team-a"))
    yield "train"
    world.apply(queue("team-a"))


def closed_queue(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("research", state="Closed"), *gang("train", 1, queue="research"))
    yield "train"
    world.apply(queue("research", state="Open"))


def queue_with_children(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("lab"), queue("vision", parent="lab"), queue("speech", parent="lab"))
    world.apply(*gang("train", 1, queue="lab"))
    yield "train"
    world.apply(*gang("train", 1, queue="vision"))


def queue_with_a_wrong_parent(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("labs"), queue("vision", parent="lab"))
    world.apply(*gang("train", 1, queue="vision"))
    yield "train"
    world.apply(queue("vision", parent="labs"))


def capability_in_use(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("research", gpus={"capability": 16}))
    world.apply(*gang("old", 1, queue="research", on=("n0",)))
    world.apply(*gang("train", 2, queue="research"))
    yield "train"
    world.end("old-0")


def capability_of_a_queue_above(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("lab", gpus={"capability": 16}))
    world.apply(queue("vision", parent="lab"), queue("speech", parent="lab"))
    world.apply(*gang("old", 1, queue="speech", on=("n0",)))
    world.apply(*gang("train", 2, queue="vision"))
    yield "train"
    world.apply(queue("lab", gpus={"capability": 24}))


def more_than_the_capability(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("research", gpus={"capability": 16}))
    world.apply(*gang("train", 3, queue="research"))
    yield "train"
    world.apply(queue("research", gpus={"capability": 24}))


def cpu_capability(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("research", capability={"cpu": "8"}))
    world.apply(*gang("old", 1, queue="research", on=("n0",), requests={"cpu": 6}))
    world.apply(*gang("train", 1, queue="research", requests={"cpu": 4}))
    yield "train"
    world.apply(*gang("train", 1, queue="research", requests={"cpu": 2}))


def guarantee_of_another_queue(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("prod", gpus={"guarantee": 16}), queue("research"))
    world.apply(*gang("old", 1, queue="research", on=("n0",)))
    world.apply(*gang("train", 2, queue="research"))
    yield "train"
    world.apply(queue("prod", gpus={"guarantee": 8}))


def borrowing_limit(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("research", gpus={"deserved": 8, "borrowingLimit": 8}), queue("prod"))
    world.apply(*gang("old", 1, queue="research", on=("n0",)))
    world.apply(*gang("train", 2, queue="research"))
    yield "train"
    world.apply(queue("research", gpus={"deserved": 8, "borrowingLimit": 16}))


def running_gangs(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("research", maxRunningGangs=1))
    world.apply(*gang("old", 1, queue="research", on=("n0",)), *gang("train", 1, queue="research"))
    yield "train"
    world.end("old-0")


def amount_of_one_namespace(world: PendingWorld) -> Story:
    limit = {"resources": {"nvidia.com/gpu": 16}}
    world.apply(*FOUR, queue("research", perNamespace=limit))
    world.apply(*gang("old", 1, queue="research", on=("n0",)), *gang("train", 2, queue="research"))
    yield "train"
    world.end("old-0")


def namespace_that_may_not_use_the_queue(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("prod", access={"namespaces": ["serving"]}), queue("research"))
    world.apply(*gang("train", 1, queue="prod"))
    yield "train"
    world.apply(*gang("train", 1, queue="research"))


def first_in_first_out(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("research", dequeueStrategy="fifo", gpus={"capability": 16}))
    world.apply(*gang("old", 1, queue="research", on=("n0",)))
    world.apply(*gang("big", 2, queue="research"))
    world.apply(*gang("train", 1, queue="research"))
    yield "train"
    world.end("old-0")
    world.end("big-0", "big-1")


def not_preemptable_within_deserved(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("research", gpus={"deserved": 8}), queue("prod"))
    marked = {"volcano.sh/preemptable": "false"}
    world.apply(*gang("train", 2, queue="research", notes=marked))
    yield "train"
    world.apply(queue("research", gpus={"deserved": 16}))


def other_queue_within_its_share(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("prod"), queue("research"))
    world.apply(*gang("serve", 2, queue="prod", on=("n0", "n1")))
    world.apply(*gang("old", 1, queue="research", on=("n2",)))
    world.apply(*gang("train", 2, queue="research"))
    yield "train"
    world.end("old-0")


def other_queue_above_its_share(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("prod"), queue("research"))
    world.apply(*gang("serve", 4, queue="prod", on=("n0", "n1", "n2", "n3")))
    world.apply(*gang("train", 2, queue="research"))
    yield "train"
    world.end("serve-0", "serve-1")


def more_than_its_queue_deserves(world: PendingWorld) -> Story:
    deserved = {"deserved": 16}
    world.apply(*FOUR, queue("prod", gpus=deserved), queue("research", gpus=deserved))
    world.apply(*(each for i in range(4) for each in gang(f"s{i}", 1, queue="prod", on=(f"n{i}",))))
    world.apply(*gang("train", 3, queue="research"))
    yield "train"
    world.apply(*gang("train", 2, queue="research"))
    world.wait(3600.0)
    leaving = [at for at in range(4) if "deletionTimestamp" in world.object(f"s{at}-0")["metadata"]]
    world.end(*(f"s{at}-0" for at in leaving))


def share_of_a_queue_above(world: PendingWorld) -> Story:
    deserved = {"deserved": 16}
    world.apply(*FOUR, queue("prod", gpus=deserved), queue("lab", gpus=deserved))
    world.apply(queue("vision", parent="lab"), queue("speech", parent="lab"))
    world.apply(*gang("serve", 2, queue="prod", on=("n0", "n1")))
    world.apply(*gang("old", 2, queue="speech", on=("n2", "n3")))
    world.apply(*gang("train", 1, queue="vision"))
    yield "train"
    world.end("old-0", "old-1")


def queue_that_is_not_reclaimable(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("prod", gpus={"deserved": 8}, reclaimable=False))
    world.apply(queue("research", gpus={"deserved": 16}))
    world.apply(*gang("serve", 4, queue="prod", on=("n0", "n1", "n2", "n3")))
    world.apply(*gang("train", 1, queue="research"))
    yield "train"
    world.apply(queue("prod", gpus={"deserved": 8}))
    world.end(*(f"serve-{i}" for i in range(4)))


def large_victim(world: PendingWorld) -> Story:
    world.apply(*FOUR, queue("prod", gpus={"deserved": 8}), queue("research", gpus={"deserved": 8}))
    world.apply(*gang("serve", 4, queue="prod", on=("n0", "n1", "n2", "n3")))
    world.apply(*gang("train", 1, 1, queue="research"))
    yield "train"
    world.wait(2000.0)
    world.apply()
    world.end(*(f"serve-{i}" for i in range(4)))


def running(count: int, **more: Any) -> list[Json]:
    return [pod(f"old-{i}", 8, on=f"n{i}", **more) for i in range(count)]


def own_pods_never_preempt(world: PendingWorld) -> Story:
    world.apply(*FOUR, *running(4, priority=0))
    world.apply(*gang("train", 1, priority=100, preemptionPolicy="Never"))
    yield "train"
    world.end("old-2")


def all_of_the_same_priority(world: PendingWorld) -> Story:
    world.apply(*FOUR, *running(4, priority=100))
    world.apply(*gang("train", 1, priority=100))
    yield "train"
    world.end("old-0")


def victims_that_are_not_preemptable(world: PendingWorld) -> Story:
    world.apply(*FOUR, *running(4, notes={"volcano.sh/preemptable": "false"}))
    world.apply(*gang("train", 1, priority=100))
    yield "train"
    world.end("old-1")


def disruption_budget(world: PendingWorld) -> Story:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep-web", "namespace": "lab"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
    }
    world.apply(*FOUR, budget, *running(4, labels={"app": "web"}))
    world.apply(*gang("train", 1, priority=100))
    yield "train"
    world.end("old-3")


def victims_that_have_just_started(world: PendingWorld) -> Story:
    world.apply(*FOUR, *running(4, notes={"volcano.sh/cooldown-time": "1h"}))
    world.apply(*gang("train", 1, priority=100))
    yield "train"
    world.end("old-3")


def pods_of_another_scheduler(world: PendingWorld) -> Story:
    world.apply(*FOUR, *running(4, schedulerName="default-scheduler"))
    world.apply(*gang("train", 1, priority=100))
    yield "train"
    world.end("old-0")


def victims_that_free_too_little(world: PendingWorld) -> Story:
    world.apply(*FOUR, *running(3, priority=200), pod("low", 4, on="n3", priority=0))
    world.apply(pod("high", 4, on="n3", priority=200))
    world.apply(*gang("train", 1, priority=100))
    yield "train"
    world.end("high")
    world.apply()
    if "low" in world.names():
        world.end("low")


def class_without_a_priority(world: PendingWorld) -> Story:
    world.apply(*FOUR, *gang("train", 1, of_group={"priorityClassName": "urgent"}))
    yield "train"
    world.apply(priority_class("urgent", 1000))

"""Queues below queues below queues."""

from central.model import limits
from central.model.facts import QueueSeen
from tests.central.poison.world import CYCLE_S, World


def test_a_chain_of_queues() -> None:
    world = World()
    chain = [QueueSeen(f"q{i}", parent=f"q{i - 1}" if i else "") for i in range(60)]
    _, spent_s = world.cycle(*chain)
    assert spent_s < CYCLE_S
    known = world.scheduler.queues.by_name
    deepest = limits.QUEUE_DEPTH - 1
    assert not known[f"q{deepest}"].error
    assert known[f"q{deepest + 1}"].error.endswith("it is more than 16 levels below root")
    assert known["q59"].error

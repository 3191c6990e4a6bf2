"""What the gangs and queues of a busy day ask for, drawn by its dice."""

import random

from central.model.facts import QueueGone, QueueSeen, SubGroupLayer, SubGroups
from central.model.pod_rules import Port, Rules
from protos.names import GPU, RACK
from tests.central import factories

RACK_GPUS = 32  # of the larger rack, which has four nodes on each day


def rules(dice: random.Random, name: str, gpus: int) -> Rules | None:
    """What eight nodes in two racks can always give once nothing breaks any more."""
    if gpus > 8 or dice.random() < 0.4:
        return None
    return dice.choice(
        (
            factories.apart(name, factories.HOST),
            factories.near(name, RACK),
            factories.even(name, RACK),
            Rules(ports=(Port("TCP", 80),)),
        )
    )


def subgroups(dice: random.Random, size: int, gpus: int) -> tuple[SubGroups, ...]:
    if size % 2 or gpus > 4 or dice.random() < 0.7:
        return ()
    level = "island" if gpus <= 2 and dice.random() < 0.5 else "node"
    one_rack = dice.random() < 0.3 and size * gpus <= RACK_GPUS
    layers = (SubGroupLayer((), RACK),) if one_rack else ()
    least = dice.randint(0, 1)
    return (SubGroups("pair", 2, least, keys=("ring",), required=level, layers=layers),)


def queue_change(dice: random.Random) -> QueueSeen | QueueGone:
    name = dice.choice(("a", "b", "org", "later"))
    if dice.random() < 0.2:
        return QueueGone(name)
    some = ((GPU, dice.choice((4, 8, 16))),)
    return QueueSeen(
        name,
        weight=dice.randint(1, 3),
        parent=dice.choice(("", "org", "a")),
        capability=dice.choice(((), (), ((GPU, 24),))),
        guarantee=dice.choice(((), (), some)),
        deserved=dice.choice(((), some)),
        closed=dice.random() < 0.1,
        error=dice.choice(("", "", "", "spec.weight: 0")),
        uid=f"uid-{name}",
        fifo=dice.random() < 0.3,
    )

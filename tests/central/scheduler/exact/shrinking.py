"""How many single pods fit when elastic gangs lose members, as an integer program."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.central.scheduler.exact.model import Model, Sum, total
from tests.central.scheduler.exact.space import nodes_of, place


class Donor(NamedTuple):
    members: Mapping[str, int]  # of one GPU each, by node
    spare: int  # that may leave


def most_served(free: Mapping[str, int], donors: Sequence[Donor], gpus: int, pods: int) -> int:
    """Of so many pods."""
    model = Model()
    after = {name: Sum(constant=amount) for name, amount in free.items()}
    for donor in donors:
        given = {name: model.integer(0, count) for name, count in donor.members.items()}
        model.at_most(total(given.values()), donor.spare)
        for name, count in given.items():
            after[name] += count
    served = model.integer(0, pods)
    place(model, nodes_of(after), [({"gpu": gpus}, served)])
    model.least([-served])
    return model.value(served)

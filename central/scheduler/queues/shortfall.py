"""Shortfalls: what a quota lacks for a gang. Only victims inside the queue can free it."""

from collections.abc import Sequence
from typing import NamedTuple

from central.model.resources import Sums
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.state.gangs import Gang

GANGS = "gangs"  # counted beside the resources


class Shortfall(NamedTuple):
    queue: Queue
    amounts: Sums
    namespace: str = ""  # only victims of this namespace count; empty: of all
    user: str = ""  # the same of the user, as Account.user

    def counts(self, victim: Gang, queue: Queue) -> bool:
        """Returns whether the usage of the victim, which is of this queue, counts for the quota."""
        user = victim.account.user if victim.account is not None else ""
        mine = self.namespace in ("", victim.namespace) and self.user in ("", user)
        return mine and self.queue in queue.path


Shortfalls = Sequence[Shortfall]  # that victims must cover together


def key(lacks: Shortfalls) -> tuple[object, ...]:
    """Returns what is equal for equal shortfalls."""
    return tuple((queue, frozenset(amounts.items()), *whose) for queue, amounts, *whose in lacks)

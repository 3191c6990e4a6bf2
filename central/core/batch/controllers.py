"""The controllers around Jobs as one: what the cluster and its turns know of them."""

from typing import TYPE_CHECKING

from central.core.batch.commands import Commands
from central.core.decisions import Decision
from central.core.facts import Answered, BatchFact, CommandGone, CommandSeen

if TYPE_CHECKING:
    from central.core.cluster import Cluster


class Controllers:
    def __init__(self) -> None:
        self.commands = Commands()

    def apply(self, fact: BatchFact) -> None:
        match fact:
            case CommandSeen():
                self.commands.seen(fact)
            case CommandGone():
                self.commands.gone((fact.namespace, fact.name))

    def answered(self, fact: Answered, now: float) -> bool:
        """Whether it answers one of theirs."""
        return self.commands.answered(fact, now)

    def decide(self, cluster: "Cluster", now: float) -> list[Decision]:
        """Before the Jobs: what they are told counts in the same turn."""
        return self.commands.decide(cluster, now)

    def due(self, now: float) -> list[float]:
        return self.commands.due(now)

    def check(self) -> None:
        self.commands.check()

"""Agents -> facts: the Fleet service, who may speak for which node, and who has fallen silent.

intents = Intents()                          # central.intents: what agents should grant
intake = Intake(inbox, reviewer.agent, intents)
server = serving.serve(listen, credentials, [intake.add_to, desk.add_to])
facts = intake.silent(now)                   # the loop asks, time.monotonic()
"""

from collections.abc import Callable

from central.core.facts import Fact, NodeSilent
from central.identity import Review
from central.intents import Intents


class Intake:
    def __init__(
        self,
        inbox: Callable[[Fact], None],
        review: Review,
        intents: Intents,
        silent_after_s: float = 30.0,
    ) -> None:
        raise NotImplementedError

    def silent(self, now: float) -> list[NodeSilent]:
        """Agents that have not been heard for too long, each once until it speaks again."""
        raise NotImplementedError

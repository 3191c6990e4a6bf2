"""A state that is long to collect is written less often, so that the coordinator has time for requests."""

import asyncio
import time
from collections.abc import Mapping
from typing import cast

from central.controllers.training.stored_state import StoredState
from central.coordinator.saving import Saving
from central.model.json_types import Json, ReadOnlyJson

COST_S = 0.02  # of processor time


class Membership:
    mark = (0, 0)


class LargeState:
    """As a StoredState that takes so long to collect."""

    run = 1
    membership = Membership()

    def changes(self, now: float, *, whole: bool) -> dict[str, Json]:
        began = time.thread_time()
        while time.thread_time() < began + COST_S:
            pass
        return {"queue/q": {}}


class QuickStore:
    durable = before_telling = True
    apart_s, writes_all = 0.0, False

    def load(self) -> dict[str, ReadOnlyJson]:
        return {}

    def save(self, run: int, sections: Mapping[str, ReadOnlyJson]) -> None:
        """It is stored at once."""

    def close(self) -> None:
        """Nothing is open."""


async def _writes_in(seconds: float) -> tuple[int, int]:
    """Writes, and answers that were durable, while somebody always waits for one."""
    saving = Saving(cast("StoredState", LargeState()), QuickStore())
    running = asyncio.create_task(saving.run())
    answers = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answers += await saving.saved(5.0)
    running.cancel()
    saving.close()
    return saving.writes, answers


def test_collecting_takes_a_fifth_of_the_time_at_most() -> None:
    writes, answers = asyncio.run(_writes_in(1.5))
    assert 1 <= writes <= 1.5 / (5 * COST_S) + 2
    assert answers >= writes - 1, "each write answers"

"""Writes the coordinator's state in the background: all that changed, in one transaction, and again until the store
takes it. A request whose answer must be durable waits for the write that includes it."""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from central.controllers.training.stored_state import StoredState
from central.coordinator.state_store import CannotStore, Fenced, StateStore
from central.model.json_types import Json

_LOG = logging.getLogger(__name__)
_RETRY_S = (0.5, 1.0, 2.0, 5.0)
_QUIET_S = 2.0  # changes without a waiting caller are written this late at most
# A state of 32,000 leases takes 0.1 s to collect: it is written less often, so that requests have the rest of the time.
_PAUSE_PER_COST, _MOST_PAUSE_S = 4.0, 1.0


class Saving:
    """on_fenced is called when another coordinator has taken over."""

    def __init__(self, state: StoredState, store: StateStore) -> None:
        self._state, self._store = state, store
        self._pending: dict[str, Json] = {}
        self._waiters: list[asyncio.Future[bool]] = []
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "store")
        self.fenced: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.not_durable_since: float | None = None  # monotonic
        self.trouble = ""
        self.writes = 0
        self._cost_s = 0.0  # processor time that collecting the last changes took
        self.stored_mark = (-1, -1)  # Membership.mark that is stored

    async def run(self) -> None:
        failures = 0
        while True:
            if not self._waiters:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), _QUIET_S)
            self._wake.clear()
            if await self._write():
                failures = 0
                pause_s = min(_MOST_PAUSE_S, _PAUSE_PER_COST * self._cost_s)
                await asyncio.sleep(max(self._store.apart_s, pause_s))
            elif self.fenced.done():
                return
            else:
                failures += 1
                await asyncio.sleep(_RETRY_S[min(failures, len(_RETRY_S)) - 1])

    async def _write(self) -> bool:
        waiters, self._waiters = self._waiters, []
        mark = self._state.membership.mark
        began = time.thread_time()
        self._pending.update(self._state.changes(time.monotonic(), whole=self._store.writes_all))
        self._cost_s = time.thread_time() - began
        done = True
        if self._pending:
            done = await self._save()
        if done:
            self._pending = {}
            self.stored_mark = mark
            self.not_durable_since, self.trouble = None, ""
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(done)
        return done

    async def _save(self) -> bool:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(
                self._thread, self._store.save, self._state.run, self._pending
            )
        except Fenced as error:
            if not self.fenced.done():
                self.fenced.set_result(str(error))
                self.trouble = str(error)
        except CannotStore as error:
            if self.not_durable_since is None:
                self.not_durable_since = time.monotonic()
                _LOG.warning("state is not stored, retrying: %s", error)
            self.trouble = str(error)
        else:
            self.writes += 1
            return True
        return False

    async def saved(self, timeout_s: float) -> bool:
        """All that was changed until now. False: it could not be stored within the time."""
        if not self._store.durable:
            return True
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wake.set()
        try:
            return await asyncio.wait_for(waiter, timeout_s)
        except TimeoutError:
            return False

    @property
    def durable(self) -> bool:
        """Returns whether all of the present state survives the process."""
        return self._store.durable and not self._pending and not self._state.unsaved()

    @property
    def before_telling(self) -> bool:
        """Returns whether members learn of a generation only after it is stored."""
        return self._store.before_telling

    async def first_write(self) -> bool:
        """Makes the number of this run durable, before anything is answered."""
        return await self._write()

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._store.close()

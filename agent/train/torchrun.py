"""The rendezvous backend `lockstep` of torchrun: the coordinator says who is there.

torchrun --rdzv-backend=lockstep finds it by the entry point `torchrun.handlers` (PyTorch 2.5 or newer). For older
versions `python -m lockstep_train.torchrun` takes torchrun's arguments. The coordinator is named by the
variables that the plugin `elastic` sets; --rdzv-endpoint is not used."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import api

from .environment import coordinator, pod_place
from .generation import NOTHING, Generation
from .membership import Membership
from .step_file import SAVE_WAIT_S, STOP_WAIT_S, StepFile
from .step_reports import LauncherReports

BACKEND = "lockstep"
STORE_WITHIN = timedelta(seconds=60)


class LockstepRendezvous(api.RendezvousHandler):  # type: ignore[misc]
    """One torchrun agent as a member. A newer generation makes torchrun start its workers again without
    counting a restart, also when the size shrinks."""

    def __init__(self, membership: Membership, run_id: str) -> None:
        self._membership, self._run_id = membership, run_id
        self._started = self._closed = False
        self._number, self._found = 0, NOTHING
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-")
        self._steps: StepFile | None = None
        self._asked_at: float | None = None  # the workers of this generation to stop
        self._saved_at = 0.0
        self._reports = LauncherReports(membership)

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        return False

    def get_run_id(self) -> str:
        return self._run_id

    def next_rendezvous(self) -> Any:
        """The agents' store, this agent's rank and their number, for the next generation."""
        if not self._started:
            self._membership.start()
            self._started = True
        found = self._membership.next_live(self._number, None)
        if found is None:
            raise self._not_in_it()
        self._number, self._found = found.number, found
        place = self._membership.place
        mine = found.find(place.member, place.incarnation)
        assert mine is not None, "next_live() gives generations that this member is in"
        # The workers inherit them.
        os.environ["LOCKSTEP_GENERATION"] = str(found.number)
        os.environ["LOCKSTEP_INCARNATION"] = str(place.incarnation)
        lease = self._membership.lease
        self._steps, self._asked_at = StepFile.begin(self._folder.name, found.number, lease), None
        self._reports.follow(self._steps)
        store = TCPStore(
            found.leader_address, found.leader_port, None, mine.rank == 0, STORE_WITHIN
        )
        return self._answer(store, mine.rank, found)

    def _answer(self, store: Any, rank: int, found: Generation) -> Any:
        """RendezvousInfo, or the tuple of PyTorch before 2.4."""
        info = getattr(api, "RendezvousInfo", None)
        if info is None:
            return store, rank, found.size
        first = api.RendezvousStoreInfo.build(rank, store, found.leader_address)
        return info(store, rank, found.size, first)

    def _not_in_it(self) -> BaseException:
        sentence = f"member {self._membership.place.member} is in no newer generation"
        if self._membership.left_by_plan:
            self._membership.leave(0)
            self._closed = True
            # Not RendezvousGracefulExitError: the agent catches it and then has no result, which ends torchrun
            # with an AttributeError and code 1 (seen in 2.15).
            return SystemExit(0)
        return api.RendezvousError(f"{sentence}: the others took it for lost; start it again")  # type: ignore[no-any-return]

    def is_closed(self) -> bool:
        return self._closed or self._membership.newest.over

    def set_closed(self) -> None:
        self._closed = True

    def num_nodes_waiting(self) -> int:
        """1: there is a newer generation, and the workers must start again; or this agent is cut off, and
        next_rendezvous() says so."""
        newest = self._membership.newest
        if self._membership.replaced or self._steps is None or self._steps.cut_off():
            return int(self._steps is not None or newest.number > self._number)
        if not newest.over and newest.number <= self._number:
            return 0
        if self._found.lost(newest) and not self._steps.saves():
            return 1  # they hang, or fail soon
        return int(self._turned(self._steps))

    def _turned(self, steps: StepFile) -> bool:
        """Asks the workers to end their turn; torchrun gives them 30 s, within which not all can save. Returns whether
        they have, or have been waited for long enough."""
        now_s = time.monotonic()
        if self._asked_at is None:
            steps.ask_to_stop()
            self._asked_at = self._saved_at = now_s
        if steps.saves():
            self._saved_at = now_s
        wait_s, most_s = (
            _seconds("LOCKSTEP_STOP_WAIT", STOP_WAIT_S),
            _seconds("LOCKSTEP_SAVE_WAIT", SAVE_WAIT_S),
        )
        late = (
            now_s >= max(self._saved_at, self._asked_at) + wait_s
            or now_s >= self._asked_at + most_s + wait_s
        )
        return late or not steps.turns()

    def shutdown(self) -> bool:
        """torchrun ends. It calls this while the error is handled that ends it, if there is one."""
        error = sys.exc_info()[1]
        if self._started and not self._closed:
            self._membership.leave(0 if error is None else 1, "" if error is None else str(error))
        self._closed = True
        return True


def _seconds(variable: str, otherwise: float) -> float:
    """Raises ValueError."""
    text = os.environ.get(variable) or str(otherwise)
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 86400:
        raise ValueError(f'{variable}="{text}" is not a number of seconds from 0 to 86400')
    return found


def create(parameters: Any) -> LockstepRendezvous:
    client = coordinator()
    if client is None:
        raise ValueError(
            "--rdzv-backend=lockstep: LOCKSTEP_COORDINATOR is not set; the plugin elastic of a Job sets it"
        )
    return LockstepRendezvous(Membership(client, pod_place()), str(parameters.run_id))


def handler() -> Callable[[Any], LockstepRendezvous]:
    """The entry point of the group `torchrun.handlers`."""
    return create


def main() -> int:
    """torchrun with the backend registered, for PyTorch before 2.5."""
    from torch.distributed import run

    registry = api.rendezvous_handler_registry
    if BACKEND not in getattr(registry, "_registry", {}):
        registry.register(BACKEND, create)
    arguments = sys.argv[1:]
    if not any(each.startswith(("--rdzv_backend", "--rdzv-backend")) for each in arguments):
        arguments = [f"--rdzv_backend={BACKEND}", *arguments]
    run.main(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())

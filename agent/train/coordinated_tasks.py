"""A queue of tasks that the coordinator keeps for all processes of the Job."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from .client import Answer, RequestRefused, Stale, Unreachable
from .membership import Membership
from .task_lease import (
    EpochStatus,
    LeaseAnswer,
    OtherEpoch,
    QueueSettings,
    SetAside,
    TaskLease,
    TaskList,
    TaskResult,
)

_NAMES_AT_ONCE = 500  # of at most 253 characters in a usual request; the bound is 256 KiB
_AGAIN_S = 0.5
_LEASE_WITHIN_S, _GIVE_BACK_WITHIN_S = 3.0, 5.0
_NOT_FOUND = 404


class CoordinatedTasks:
    """Waits while the coordinator is away. A coordinator that started without its state gets the queue
    again. Made in each process of the Job with the same tasks and settings."""

    def __init__(self, membership: Membership, tasks: TaskList, settings: QueueSettings) -> None:
        self._membership, self._tasks, self._settings = membership, tasks, settings
        self._create()

    # -- the queue

    def _create(self) -> None:
        settings = self._settings
        body: dict[str, Any] = {**vars(settings)}
        if self._tasks.size:
            body["range"] = {"records": self._tasks.records, "size": self._tasks.size}
            self._membership.client.insist("/v1/queue", body)
            return
        names = self._tasks.names
        for start in range(0, max(1, len(names)), _NAMES_AT_ONCE):
            part = list(names[start : start + _NAMES_AT_ONCE])
            more = {"tasks": part, "from": start, "total": len(names)}
            self._membership.client.insist("/v1/queue", {**body, **more})

    def _ask(self, path: str, body: Mapping[str, Any], within_s: float | None = None) -> Answer:
        """An answer, however long it takes, or Unreachable after `within_s`. Raises RequestRefused and Stale
        for what this process must know."""
        membership, queue = self._membership, self._settings.queue
        while True:
            try:
                asked = {**membership.place.identity(), "queue": queue, **body}
                return membership.client.insist(path, asked, within_s)
            except Stale as error:
                if not error.must_join:
                    raise
                membership.join_again()
            except RequestRefused as error:
                if error.status != _NOT_FOUND:
                    raise
                self._create()
            time.sleep(_AGAIN_S * random.uniform(0.5, 1.0))

    def lease(self, epoch: int) -> LeaseAnswer:
        try:
            answer = self._ask("/v1/lease", {"epoch": epoch, "most": 1}, _LEASE_WITHIN_S)
        except Unreachable:
            # The process may have got a signal to end meanwhile.
            return LeaseAnswer(None, 0.0, over=False)
        except Stale as error:
            if "epoch" not in error.body:
                raise
            raise OtherEpoch(self._settings.queue, epoch, int(error.body["epoch"])) from error
        given = answer.get("tasks") or ()
        lease = _lease(given[0], epoch) if given else None
        return LeaseAnswer(lease, float(answer.get("wait_s") or 0.0), bool(answer.get("over")))

    # -- of a task that this process holds

    def done(self, lease: TaskLease, result: str) -> bool:
        return self._says("/v1/done", lease, {"result": result})

    def failed(self, lease: TaskLease, why: str) -> bool:
        return self._says("/v1/failed", lease, {"why": why})

    def give_back(self, lease: TaskLease) -> bool:
        """An unreachable coordinator is not waited for long: the lease ends with this process."""
        try:
            return self._says("/v1/failed", lease, {"given_back": True}, _GIVE_BACK_WITHIN_S)
        except Unreachable:
            return False

    def _says(
        self, path: str, lease: TaskLease, more: Mapping[str, Any], within_s: float | None = None
    ) -> bool:
        try:
            self._ask(path, {**_key(lease), **more}, within_s)
        except Stale as error:
            if error.body.get("lost"):
                return False
            raise
        return True

    def renew(self, lease: TaskLease, upto: int) -> float | None:
        """One try: it is sent again soon. Raises Unreachable."""
        place = self._membership.place
        body = {**place.identity(), "queue": self._settings.queue, **_key(lease), "upto": upto}
        try:
            return float(self._membership.client.post("/v1/progress", body)["lease_s"])
        except Stale as error:
            if error.body.get("lost"):
                return None
            raise Unreachable(str(error)) from error
        except RequestRefused as error:
            raise Unreachable(str(error)) from error

    # -- questions

    def status(self) -> EpochStatus:
        found = self._get("/v1/epoch", {"queue": self._settings.queue})
        aside = [SetAside(int(t["task"]), t["name"], t["why"]) for t in found["failed"]]
        counts = {name: int(found[name]) for name in ("epoch", "tasks", "todo", "leased", "done")}
        return EpochStatus(**counts, over=bool(found["over"]), set_aside=tuple(aside))

    def results(self, epoch: int, start: int) -> tuple[list[TaskResult], int | None]:
        query = {"queue": self._settings.queue, "epoch": epoch, "from": start}
        try:
            found = self._get("/v1/results", query)
        except Stale as error:
            if "epoch" not in error.body:
                raise
            raise OtherEpoch(self._settings.queue, epoch, int(error.body["epoch"])) from error
        results = [TaskResult(**{**each}) for each in found["results"]]
        return results, found["next"]

    def _get(self, path: str, query: Mapping[str, Any]) -> Answer:
        while (found := self._got(path, query)) is None:
            time.sleep(_AGAIN_S)
        return found

    def _got(self, path: str, query: Mapping[str, Any]) -> Answer | None:
        try:
            return self._membership.client.get(path, query) or {}
        except Unreachable:
            return None


def _lease(given: Mapping[str, Any], epoch: int) -> TaskLease:
    return TaskLease(
        int(given["task"]),
        str(given["name"]),
        epoch,
        int(given["attempt"]),
        int(given.get("resume") or 0),
        float(given["lease_s"]),
    )


def _key(lease: TaskLease) -> dict[str, int]:
    return {"epoch": lease.epoch, "task": lease.task, "attempt": lease.attempt}

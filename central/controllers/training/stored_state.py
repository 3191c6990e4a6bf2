"""The coordinator's whole state, and its form in a store: sections, of which only those are written that changed.

The schema has a version. Older ones are read, a newer one is refused. Sections with unknown names are left as they
are.
"""

from collections.abc import Callable
from functools import partial

from central.controllers.training.checkpoints import Checkpoints
from central.controllers.training.membership import Membership, MembershipRules
from central.controllers.training.task_queue import RESULTS_PART, TaskQueue
from central.controllers.training.tasks import Tasks
from central.model.defaults import TASKS_FAILED_MOST
from central.model.json_types import Json, ReadOnlyJson

SCHEMA = 1
_META, _MEMBERS, _CHECKPOINTS = "meta", "membership", "checkpoints"


class UnreadableState(Exception):
    """The stored state cannot be used, with the reason as a sentence."""


class StoredState:
    """run: how often a coordinator was started with this state. failed_most: the part of a queue's tasks that may be
    set aside in an epoch; with more the Job fails."""

    def __init__(
        self, job: str, rules: MembershipRules, failed_most: float = TASKS_FAILED_MOST
    ) -> None:
        self._failed_most = failed_most
        self.job = job
        self.run = 0
        self.membership = Membership(rules)
        self.tasks = Tasks()
        self.checkpoints = Checkpoints()
        self._written: dict[str, object] = {}

    def advance(self, now: float) -> float:
        """Returns when to call again at the latest."""
        members = self.membership
        at = members.advance(now)
        expiry = self.tasks.advance(now, members.present())
        if why := self.tasks.too_many_set_aside(self._failed_most):
            members.fail(why)
        if members.live is not None:
            self.checkpoints.drop_older(members.live.number)
        return at if expiry is None else min(at, expiry)

    # -- writing

    def changes(self, now: float) -> dict[str, Json]:
        """The sections that changed since the last call."""
        found: dict[str, Json] = {}
        self._note(found, _META, self.run, self._meta)
        self._note(found, _MEMBERS, self.membership.version, self.membership.snapshot)
        self._note(found, _CHECKPOINTS, self.checkpoints.version, self.checkpoints.snapshot)
        for name, queue in self.tasks.queues.items():
            mark = (queue.source.total, len(queue.source.names))
            self._note(found, f"source/{name}", mark, queue.source.json)
            self._note(found, f"queue/{name}", queue.version, partial(queue.snapshot, now))
            self._results(found, name, queue)
        return found

    def _meta(self) -> Json:
        return {"schema": SCHEMA, "job": self.job, "run": self.run}

    def _note(
        self, found: dict[str, Json], name: str, mark: object, make: Callable[[], Json]
    ) -> None:
        if self._written.get(name) != mark:
            self._written[name] = mark
            found[name] = make()

    @staticmethod
    def _results(found: dict[str, Json], name: str, queue: TaskQueue) -> None:
        """Two sets of results alternate, so that those of the epoch before stay."""
        for part in queue.changed_results:
            tasks = range(part * RESULTS_PART, (part + 1) * RESULTS_PART)
            kept = [[t, *queue.results[t]] for t in tasks if t in queue.results]
            key = f"results/{name}/{queue.epoch % 2}/{part}"
            found[key] = {"epoch": queue.epoch, "results": kept}
        queue.changed_results.clear()

    # -- reading

    def read(self, sections: dict[str, ReadOnlyJson], now: float) -> None:
        """Raises UnreadableState."""
        meta = sections.get(_META)
        if meta is None:
            if sections:
                raise UnreadableState("the stored state has no schema version")
            self.run = 1
            self.tasks = Tasks(self.run)
            return
        if meta["schema"] > SCHEMA:
            raise UnreadableState(
                f"the stored state has schema {meta['schema']}; this version reads schemas up to "
                f"{SCHEMA}; run the version that wrote it, or a newer one"
            )
        if meta["job"] != self.job:
            raise UnreadableState(
                f"the stored state belongs to Job {meta['job']}, not {self.job}; give each Job a store of its own"
            )
        self.run = meta["run"] + 1
        try:
            self._read(sections, now)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UnreadableState(f"the stored state is damaged ({error!r})") from error

    def _read(self, sections: dict[str, ReadOnlyJson], now: float) -> None:
        self.tasks = Tasks(self.run)
        if _MEMBERS in sections:
            rules = self.membership.rules
            self.membership = Membership.restore(rules, sections[_MEMBERS], now)
        if _CHECKPOINTS in sections:
            self.checkpoints = Checkpoints.restore(sections[_CHECKPOINTS], now)
        states, sources = (
            {name.split("/", 1)[1]: one for name, one in sections.items() if name.startswith(kind)}
            for kind in ("queue/", "source/")
        )
        self.tasks.restore(now, sources, states)
        for key, section in sections.items():
            if key.startswith("results/"):
                _, rest = key.split("/", 1)
                queue = self.tasks.queues.get(rest.rsplit("/", 2)[0])
                if queue is not None:
                    _read_results(queue, section)


def _read_results(queue: TaskQueue, section: ReadOnlyJson) -> None:
    """Those of earlier epochs were overwritten, or are not read."""
    found = {task: (attempt, text) for task, attempt, text in section["results"]}
    if section["epoch"] == queue.epoch:
        queue.results.update(found)
    elif section["epoch"] == queue.epoch - 1:
        queue.previous.update(found)

"""The Command controller: a user's request to act on a Job or a Queue.

The action is written to the target together with the Command's uid, and then the Command is deleted. After a
crash, the uid on the target shows whether the Command was executed. Commands for one target run one at a
time, in the order of their creation. A Command whose target is unknown stays: another controller may own the
target, or its object has not arrived yet.

Design: docs/design/jobs.md
"""

from dataclasses import dataclass, field
from typing import ClassVar

from central.controllers.job.job_store import JobStore
from central.controllers.object_fence import ObjectFence
from central.controllers.pending_calls import Call, PendingCalls
from central.model.decisions import Decision, Delete, Patch
from central.model.event_objects import about, build_event
from central.model.event_reasons import COMMAND_ISSUED, COMMAND_REFUSED, COMMAND_WAITS
from central.model.facts import Answered, CommandSeen
from central.model.jobspec import API
from central.model.object_names import NamespacedName
from central.scheduler.queues.queue_tree import Queues
from protos.names import COMMAND

OPEN, CLOSE = "OpenQueue", "CloseQueue"
STATES = {OPEN: "Open", CLOSE: "Closed"}
RECHECK_S = 0.5  # a Job that has nothing to change finishes a Command without an API call
_VERSIONS = {"Job": API, "Queue": "scheduling.volcano.sh/v1beta1"}


@dataclass(eq=False)
class CommandController:
    KIND: ClassVar = "Command"

    by_name: dict[NamespacedName, CommandSeen] = field(default_factory=dict)
    _issued: set[NamespacedName] = field(default_factory=set)  # passed to their targets
    _handled: set[NamespacedName] = field(default_factory=set)  # executed or refused; to be deleted
    _explained: set[NamespacedName] = field(default_factory=set)  # users know what they wait for
    _calls: PendingCalls = field(default_factory=PendingCalls)

    def seen(self, fact: CommandSeen) -> None:
        key = (fact.namespace, fact.name)
        before = self.by_name.get(key)
        if fact.leaving or (before is not None and before.uid != fact.uid):
            self.gone(key)
        if not fact.leaving:
            self.by_name[key] = fact

    def gone(self, key: NamespacedName) -> None:
        self.by_name.pop(key, None)
        self._issued.discard(key)
        self._handled.discard(key)
        self._explained.discard(key)
        self._calls.seen(("Command", *key))

    def answered(self, fact: Answered, fence: ObjectFence, now: float) -> bool:
        """Returns whether the fact answers one of this controller's calls."""
        found = self._calls.answered(fact, now)
        if found is None:
            return False
        call, key = found
        try:
            self._note_answer(call, key, fact)
        except Exception as error:  # noqa: BLE001  a bug; the Command is set aside
            self._issued.discard(key)
            if (command := self.by_name.get(key)) is not None:
                fence.failed(key, command, error)
        return True

    def _note_answer(self, call: Call, key: NamespacedName, fact: Answered) -> None:
        if isinstance(call, Patch):  # of a Queue
            if not fact.why:
                self._calls.seen((call.kind, call.namespace, call.name))
                if key in self._issued:
                    self._handled.add(key)
            else:
                self._issued.discard(key)
        elif isinstance(call, Delete) and not fact.why:
            self.gone(key)

    def decide(
        self, jobs: JobStore, queues: Queues, fence: ObjectFence, now: float
    ) -> list[Decision]:
        """Advances the oldest Command of each target. One that raises is set aside, and the next one of
        its target follows unless the target has it already."""
        decisions: list[Decision] = []
        fence.retried(self.by_name)
        if not self.by_name:
            return decisions
        targets = {_target(self.by_name[key]) for key in self._issued - self._handled}
        for key, command in sorted(
            self.by_name.items(), key=lambda item: (item[1].created, item[0])
        ):
            if fence.blocks(key, command):
                continue
            self._calls.begin()
            try:
                target = _target(command)
                if target in targets and key not in self._issued:
                    continue
                if _is_known(jobs, queues, command):
                    decisions += self._advance(jobs, queues, key, command, now)
                    targets.add(target)
                else:
                    decisions += self._explain_wait(fence, key, command, now)
            except Exception as error:  # noqa: BLE001  a bug; the Command is set aside
                fence.failed(key, command, error)
                self._drop_calls(key)
                if key in self._issued:
                    targets.add(_target(command))
            else:
                fence.passed(key)
        return decisions

    def _explain_wait(
        self, fence: ObjectFence, key: NamespacedName, command: CommandSeen, now: float
    ) -> list[Decision]:
        """An Event, once, if the target exists and a bug keeps it out: the Command waits for it."""
        why = fence.absence(*_named(command))
        if not why or key in self._explained:
            return []
        self._explained.add(key)
        text = f"{command.action} by Command {command.name} waits: {command.kind} {command.target} {why}"
        it = about(_VERSIONS[command.kind], *_target(command), command.target_uid)
        return [build_event(it, COMMAND_WAITS, text, now, warning=True)]

    def _drop_calls(self, key: NamespacedName) -> None:
        if any(isinstance(call, Patch) for call in self._calls.drop()):
            self._issued.discard(key)  # the Queue does not get it

    def due(self, now: float) -> list[float]:
        if not self.by_name:
            return []
        looks = [now + RECHECK_S] if self._issued - self._handled else []
        return [*looks, *self._calls.due(now)]

    def _advance(
        self, jobs: JobStore, queues: Queues, key: NamespacedName, command: CommandSeen, now: float
    ) -> list[Decision]:
        decisions: list[Decision] = []
        if key not in self._handled and self._is_handled(jobs, queues, key, command):
            self._handled.add(key)
        if key not in self._handled and key not in self._issued:
            decisions += self._issue(jobs, queues, key, command, now)
        if key in self._handled and self._calls.may_call(("Command", *key), now):
            why = f"{command.action} is executed"
            call = Delete("Command", command.namespace, command.name, command.uid, why)
            decisions.append(self._calls.track(call, key))
        return decisions

    def _is_handled(
        self, jobs: JobStore, queues: Queues, key: NamespacedName, command: CommandSeen
    ) -> bool:
        if command.kind == "Queue":
            return queues.by_name[command.target].seen.command == command.uid
        job = jobs.by_name[command.namespace, command.target]
        if job.status.command == command.uid:
            return True
        return key in self._issued and command.uid not in {wish.uid for wish in job.commands}

    def _issue(
        self, jobs: JobStore, queues: Queues, key: NamespacedName, command: CommandSeen, now: float
    ) -> list[Decision]:
        note = f"{command.reason}: {command.message}" if command.reason else command.message
        why = f"{command.action} by Command {command.name}" + (f" ({note})" if note else "")
        done: list[Decision] = []
        if command.kind == "Job":
            target = (command.namespace, command.target)
            refusal = jobs.request_action(target, command.action, why, command.uid)
        else:
            place = ("Queue", "", command.target)
            if not self._calls.may_call(place, now):
                return []
            refusal, done = self._patch_queue(jobs, queues, command)
        (self._handled if refusal else self._issued).add(key)
        it = about(_VERSIONS[command.kind], *_target(command), command.target_uid)
        reason = COMMAND_REFUSED if refusal else COMMAND_ISSUED
        return [*done, build_event(it, reason, refusal or why, now, warning=bool(refusal))]

    def _patch_queue(
        self, jobs: JobStore, queues: Queues, command: CommandSeen
    ) -> tuple[str, list[Decision]]:
        state = STATES.get(command.action)
        if state is None:
            return f'action: "{command.action}" must be {OPEN} or {CLOSE}', []
        queue = queues.by_name[command.target]
        meta = {"annotations": {COMMAND: command.uid}}
        change = {"metadata": meta, "spec": {"state": state}}
        patch = Patch("Queue", "", command.target, queue.seen.uid, change)
        return "", [self._calls.track(patch, (command.namespace, command.name))]


def _target(command: CommandSeen) -> tuple[str, str, str]:
    return (command.kind, command.namespace if command.kind == "Job" else "", command.target)


def _named(command: CommandSeen) -> tuple[str, str, str]:
    """Kind, name and namespace of the target."""
    kind, namespace, name = _target(command)
    return kind, name, namespace


def _is_known(jobs: JobStore, queues: Queues, command: CommandSeen) -> bool:
    """Returns whether the target, with the uid that the Command names, is known."""
    if command.kind == "Job":
        job = jobs.by_name.get((command.namespace, command.target))
        uid = job.spec.uid if job is not None else None
    elif command.kind == "Queue":
        queue = queues.by_name.get(command.target)
        uid = queue.seen.uid if queue is not None and queue.seen.uid else None
    else:
        return False
    return uid is not None and command.target_uid in ("", uid)

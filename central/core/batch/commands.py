"""Commands: somebody wants something done to a Job or to a Queue. A Command is taken away first and obeyed
then, so at most once; those for one target one after the other, in the order in which they came.

A Command whose target is not known here stays: another controller may know it, or it is soon seen."""

from typing import TYPE_CHECKING

from central.core.batch.calls import Calls, event
from central.core.decisions import Decision, Delete, Patch
from central.core.facts import Answered, CommandSeen

if TYPE_CHECKING:
    from central.core.cluster import Cluster

Key = tuple[str, str]  # namespace and name
OPEN, CLOSE = "OpenQueue", "CloseQueue"
STATES = {OPEN: "Open", CLOSE: "Closed"}
_VERSIONS = {"Job": "batch.volcano.sh/v1alpha1", "Queue": "scheduling.volcano.sh/v1beta1"}


class Commands:
    def __init__(self) -> None:
        self.there: dict[Key, CommandSeen] = {}
        self._taking: dict[Key, CommandSeen] = {}  # asked to be deleted
        self._taken: list[CommandSeen] = []  # deleted: to be obeyed
        self._calls = Calls()

    def seen(self, fact: CommandSeen) -> None:
        self.there[fact.namespace, fact.name] = fact

    def gone(self, key: Key) -> None:
        self.there.pop(key, None)
        self._calls.seen(("Command", *key))

    def answered(self, fact: Answered, now: float) -> bool:
        if self._calls.answered(fact, now) is None:
            return False
        if fact.kind == "Command":
            command = self._taking.pop((fact.namespace, fact.name))
            if not fact.why:
                self.there.pop((fact.namespace, fact.name), None)
                self._taken.append(command)
        return True

    def decide(self, cluster: "Cluster", now: float) -> list[Decision]:
        """First what is taken is obeyed, then the next ones are taken."""
        decisions: list[Decision] = []
        if not self.there and not self._taken:
            return decisions
        for command in self._taken:
            decisions += self._obey(cluster, command, now)
        self._taken.clear()
        busy = {_target(command) for command in self._taking.values()}
        for key, command in sorted(self.there.items(), key=lambda item: (item[1].created, item[0])):
            target = _target(command)
            if target not in busy and _knows(cluster, command):
                busy.add(target)
                if self._calls.may(("Command", *key), now):
                    why = f"{command.action} is taken up"
                    self._taking[key] = command
                    call = Delete("Command", command.namespace, command.name, command.uid, why)
                    decisions.append(self._calls.asked(call, key))
        return decisions

    def due(self, now: float) -> list[float]:
        return self._calls.due(now) if self.there else []

    def check(self) -> None:
        targets = [_target(command) for command in self._taking.values()]
        assert len(targets) == len(set(targets)), "two Commands for one target are taken at once"
        assert not self._taken, "a Command was taken and not obeyed"

    def _obey(self, cluster: "Cluster", command: CommandSeen, now: float) -> list[Decision]:
        who = f"{command.reason}: {command.message}" if command.reason else command.message
        why = f"{command.action} by Command {command.name}" + (f" ({who})" if who else "")
        if command.kind == "Job":
            refusal = cluster.jobs.command((command.namespace, command.target), command.action, why)
            done: list[Decision] = []
        else:
            refusal, done = self._queue(cluster, command)
        about = {
            "apiVersion": _VERSIONS[command.kind],
            "kind": command.kind,
            "namespace": command.namespace if command.kind == "Job" else "",
            "name": command.target,
            "uid": command.target_uid,
        }
        reason = "CommandRefused" if refusal else "CommandIssued"
        return [*done, event(about, reason, refusal or why, now, warning=bool(refusal))]

    def _queue(self, cluster: "Cluster", command: CommandSeen) -> tuple[str, list[Decision]]:
        state = STATES.get(command.action)
        if state is None:
            return f'action: "{command.action}" is neither {OPEN} nor {CLOSE}', []
        queue = cluster.queues.by_name.get(command.target)
        if queue is None or not queue.seen.uid:
            return f"there is no queue {command.target}", []
        patch = Patch("Queue", "", command.target, queue.seen.uid, {"spec": {"state": state}})
        return "", [self._calls.asked(patch, (command.namespace, command.name))]


def _target(command: CommandSeen) -> tuple[str, str, str]:
    return (command.kind, command.namespace if command.kind == "Job" else "", command.target)


def _knows(cluster: "Cluster", command: CommandSeen) -> bool:
    """Whether the very object that is meant is ours."""
    if command.kind == "Job":
        job = cluster.jobs.by_name.get((command.namespace, command.target))
        uid = job.spec.uid if job is not None else None
    elif command.kind == "Queue":
        queue = cluster.queues.by_name.get(command.target)
        uid = queue.seen.uid if queue is not None and queue.seen.uid else None
    else:
        return False
    return uid is not None and command.target_uid in ("", uid)

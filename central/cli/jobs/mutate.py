"""What changes a job, a queue or a group: Commands for jobs (as every tool of this API gives them), the
object itself for queues."""

from collections.abc import Mapping

from central.cli.jobs.api import COMMANDS, JOBS, QUEUES, Api, CannotDo
from central.cli.jobs.list_columns import DEFAULT
from central.controllers.job.state_machine import TRANSITIONS
from central.kube.resource_paths import ResourcePath
from central.model.jobspec import PENDING
from central.model.json_types import Json

STATES = {"open": "Open", "close": "Closed"}
ACTIONS = {"open": "OpenQueue", "close": "CloseQueue"}


def command(api: Api, name: str, action: str, word: str) -> str:
    """Asks for the action; the job's controller takes the Command away as it obeys."""
    job = api.get(JOBS, name)
    phase = ((job.get("status") or {}).get("state") or {}).get("phase") or PENDING
    if not TRANSITIONS.get(phase, True):
        raise CannotDo(f"job {name} is {phase}: there is nothing to {word}")
    _give(api, JOBS, job, action, word)
    return f"{word} job {name} successfully (it was {phase})"


def _give(api: Api, kind: ResourcePath, obj: Json, action: str, word: str) -> None:
    meta = obj["metadata"]
    target = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    # Names have 253 characters at most, and the server adds five.
    made = {
        "generateName": f"{meta['name'][:200]}-{word}-",
        "namespace": meta.get("namespace") or "default",
        "ownerReferences": [target],
    }
    command = {"apiVersion": COMMANDS.api_version, "kind": COMMANDS.kind, "metadata": made}
    api.create(COMMANDS, {**command, "target": target, "action": action})


def delete(api: Api, kind: ResourcePath, name: str) -> str:
    api.delete(kind, name)
    return f"delete {kind.singular} {name} successfully"


def create_queue(api: Api, name: str, spec: Json) -> str:
    obj = {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    api.create(QUEUES, obj)
    return f"create queue {name} successfully"


def operate_queue(api: Api, name: str, action: str, changes: Mapping[str, object]) -> str:
    if action == "update":
        if not changes:
            raise CannotDo(
                "update what? --weight, --capability, --deserved, --guarantee or --parent"
            )
        _make_default(api, name)
        api.patch(QUEUES, name, {"spec": changes})
        return f"update queue {name} successfully"
    if changes:
        raise CannotDo(f"{action} takes no other flags; change them with --action update")
    _make_default(api, name)
    changed = api.patch(QUEUES, name, {"spec": {"state": STATES[action]}})
    if (changed.get("spec") or {}).get("state") != STATES[action]:
        # Volcano's own definition knows no such wish: its controllers take a Command.
        _give(api, QUEUES, changed, ACTIONS[action], action)
    return f"{action} queue {name} successfully"


def _make_default(api: Api, name: str) -> None:
    """It is there without an object; who changes it gives it one."""
    if name == DEFAULT and api.find(QUEUES, name) is None:
        create_queue(api, name, {})

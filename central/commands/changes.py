"""What changes a job, a queue or a group: Commands for jobs (as every tool of this API gives them), the
object itself for queues."""

from collections.abc import Mapping

from central.commands.api import COMMANDS, JOBS, QUEUES, Api, CannotDo, Json, Kind

STATES = {"open": "Open", "close": "Closed"}


def command(api: Api, name: str, action: str, word: str) -> str:
    """Asks for the action; the job's controller takes the Command away as it obeys."""
    job = api.get(JOBS, name)
    meta = job["metadata"]
    target = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "name": name,
        "uid": meta["uid"],
        "controller": True,
    }
    # Names have 253 characters at most, and the server adds five.
    made = {"generateName": f"{name[:200]}-{word}-", "namespace": meta["namespace"]}
    api.create(
        COMMANDS,
        {
            "apiVersion": COMMANDS.api_version,
            "kind": COMMANDS.kind,
            "metadata": made | {"ownerReferences": [target]},
            "target": target,
            "action": action,
        },
    )
    phase = ((job.get("status") or {}).get("state") or {}).get("phase") or "Pending"
    return f"{word} job {name} successfully (it was {phase})"


def delete(api: Api, kind: Kind, name: str) -> str:
    api.delete(kind, name)
    return f"delete {kind.word} {name} successfully"


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
        api.patch(QUEUES, name, {"spec": changes})
        return f"update queue {name} successfully"
    if changes:
        raise CannotDo(f"{action} takes no other flags; change them with --action update")
    api.patch(QUEUES, name, {"spec": {"state": STATES[action]}})
    return f"{action} queue {name} successfully"

"""Commands that change jobs, queues and groups. Jobs are suspended and resumed with Command objects, as
every client of this API does; queues are changed directly."""

import argparse

from central.cli.exit_codes import CannotDo
from central.cli.jobs.api import COMMANDS, JOBS, KINDS, QUEUES, Api, named
from central.controllers.job.state_machine import TRANSITIONS
from central.kube.resource_paths import ResourcePath
from central.model.jobspec import PENDING
from central.model.json_types import Json
from central.model.resources import DEFAULT

STATES = {"open": "Open", "close": "Closed"}
ACTIONS = {"open": "OpenQueue", "close": "CloseQueue"}
DONE = {"open": "opened", "close": "closed", "update": "updated"}


def command(api: Api, args: argparse.Namespace) -> int:
    """Creates a Command for each job. The Job controller deletes it when it carries it out."""
    for name in args.chosen:
        job = api.get(JOBS, name)
        phase = ((job.get("status") or {}).get("state") or {}).get("phase") or PENDING
        if not TRANSITIONS.get(phase, True):
            raise CannotDo(f"job {name} is {phase}: it can't {args.verb}")
        _create_command(api, JOBS, job, args.action, args.verb)
        print(f"{named(JOBS, api.namespace, name)}: {args.verb} requested (phase {phase})")
    return 0


def delete(api: Api, args: argparse.Namespace) -> int:
    kind = KINDS[args.kind]
    for name in args.chosen:
        api.delete(kind, name)
        print(f"{named(kind, api.namespace, name)} deleted")
    return 0


def create_queue(api: Api, args: argparse.Namespace) -> int:
    spec = {**_queue_spec(args), "state": args.state}
    if args.priority is not None:
        spec["priority"] = args.priority
    if args.keep:
        spec["reclaimable"] = False
    _create_queue(api, args.chosen, spec)
    print(f"{named(QUEUES, '', args.chosen)} created")
    return 0


def operate_queue(api: Api, args: argparse.Namespace) -> int:
    name, action, changes = args.chosen, args.action, _queue_spec(args)
    if action == "update" and not changes:
        raise CannotDo(
            "--action update needs one of --weight, --capability, --deserved, --guarantee, --parent"
        )
    if action != "update" and changes:
        raise CannotDo(f"--action {action} takes no other flags; use --action update for them")
    if name == DEFAULT and api.find(QUEUES, name) is None:
        _create_queue(api, name, {})  # the default queue exists without an object
    if action == "update":
        api.patch(QUEUES, name, {"spec": changes})
    else:
        changed = api.patch(QUEUES, name, {"spec": {"state": STATES[action]}})
        if (changed.get("spec") or {}).get("state") != STATES[action]:
            # Volcano's own CRD has no spec.state: its controllers take a Command.
            _create_command(api, QUEUES, changed, ACTIONS[action], action)
    print(f"{named(QUEUES, '', name)} {DONE[action]}")
    return 0


def _create_command(api: Api, kind: ResourcePath, obj: Json, action: str, verb: str) -> None:
    meta = obj["metadata"]
    target = kind.body(name=meta["name"], uid=meta["uid"], controller=True)
    # Names have 253 characters at most, of which the server adds five.
    made = {
        "generateName": f"{meta['name'][:200]}-{verb}-",
        "namespace": meta.get("namespace") or "default",
        "ownerReferences": [target],
    }
    api.create(COMMANDS, COMMANDS.body(metadata=made, target=target, action=action))


def _create_queue(api: Api, name: str, spec: Json) -> None:
    api.create(QUEUES, QUEUES.body(metadata={"name": name}, spec=spec))


def _queue_spec(args: argparse.Namespace) -> Json:
    spec: Json = {"weight": args.weight} if args.weight is not None else {}
    if args.parent:
        spec["parent"] = args.parent
    if args.capability:
        spec["capability"] = dict(args.capability)
    if args.deserved:
        spec["deserved"] = dict(args.deserved)
    if args.guarantee:
        spec["guarantee"] = {"resource": dict(args.guarantee)}
    return spec

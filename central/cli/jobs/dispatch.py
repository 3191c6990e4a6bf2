"""From what was typed to what is done. Everything heavy is imported when it is needed, so that the
command starts quickly."""

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from central.cli.jobs.api import Api
    from central.kube.resource_paths import ResourcePath
    from central.model.json_types import Json

Run = Callable[["Api", argparse.Namespace], int]


def saying(run: Run) -> Callable[[argparse.Namespace], int]:
    """What can't be done is one sentence, and exit code 2."""

    def guarded(args: argparse.Namespace) -> int:
        from central.cli.jobs.api import CannotDo, open_api, usual_namespace

        try:
            _names(args)
            if getattr(args, "filename", None):
                from central.cli.jobs import manifests

                args.objects = manifests.read(args.filename)  # what is typed wrong is said first
            space = getattr(args, "namespace", None)
            if getattr(args, "dry_run", False):
                from central.cli.jobs import job_run

                return job_run.show(space or usual_namespace(args.kubeconfig, args.context), args)
            with open_api(args.kubeconfig, args.context, space) as api:
                return run(api, args)
        except CannotDo as error:
            print(f"lockstep: {error}", file=sys.stderr)
            return 2

    return guarded


def _names(args: argparse.Namespace) -> None:
    """args.chosen: the name that was typed, or the names where there may be several."""
    from central.cli.jobs.api import CannotDo

    if not hasattr(args, "many"):
        return
    places = args.names if isinstance(args.names, list) else [args.names] if args.names else []
    names = [*places, *([args.flag_name] if args.flag_name else [])]
    if not names and not getattr(args, "filename", None):
        raise CannotDo(
            f"{args.kind} {args.verb}: which {args.kind}? Name it: lockstep {args.kind} {args.verb} NAME"
        )
    if len(names) > 1 and not args.many:
        raise CannotDo(f"{args.kind} {args.verb}: one name only, not {' and '.join(names)}")
    if names and getattr(args, "filename", None):
        raise CannotDo(f"{args.kind} {args.verb}: either a name or --filename, not both")
    args.chosen = names if args.many else next(iter(names), "")


def run_job(api: "Api", args: argparse.Namespace) -> int:
    from central.cli.jobs import job_run

    return job_run.run(api, args)


def show_list(api: "Api", args: argparse.Namespace) -> int:
    from central.cli.jobs import list_command

    return list_command.show(api, _kind(args), args)


def show_one(api: "Api", args: argparse.Namespace) -> int:
    from central.cli.jobs import describe, terminal_table
    from central.cli.jobs.output import written

    if args.output in ("json", "yaml"):
        print(written(api.get(_kind(args), args.chosen), args.output), end="")
        return 0
    view = {"job": describe.job, "group": describe.group, "queue": describe.queue}[args.kind]
    print(view(api, args.chosen, terminal_table.width()), end="")
    return 0


def watch_job(api: "Api", args: argparse.Namespace) -> int:
    from central.cli.jobs import follow

    return follow.job(api, args.chosen, lambda line: print(line, flush=True))


def show_logs(api: "Api", args: argparse.Namespace) -> int:
    from central.cli.jobs import pod_logs

    return pod_logs.show(api, args.chosen, args)


def command(api: "Api", args: argparse.Namespace) -> int:
    from central.cli.jobs import mutate

    for name in args.chosen:
        print(mutate.command(api, name, args.action, args.verb))
    return 0


def delete(api: "Api", args: argparse.Namespace) -> int:
    from central.cli.jobs import mutate

    for name in args.chosen:
        print(mutate.delete(api, _kind(args), name))
    return 0


def create_queue(api: "Api", args: argparse.Namespace) -> int:
    from central.cli.jobs import mutate

    spec = {**_queue_spec(args), "state": args.state}
    if args.priority is not None:
        spec["priority"] = args.priority
    if args.keep:
        spec["reclaimable"] = False
    print(mutate.create_queue(api, args.chosen, spec))
    return 0


def operate_queue(api: "Api", args: argparse.Namespace) -> int:
    from central.cli.jobs import mutate

    print(mutate.operate_queue(api, args.chosen, args.action, _queue_spec(args)))
    return 0


def _queue_spec(args: argparse.Namespace) -> "Json":
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


def _kind(args: argparse.Namespace) -> "ResourcePath":
    from central.cli.jobs import api

    return {"job": api.JOBS, "group": api.GROUPS, "queue": api.QUEUES}[args.kind]

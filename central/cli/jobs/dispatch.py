"""Dispatch of parsed flags to the command. Each command's module is imported when it runs, so that `lockstep` starts
quickly."""

import argparse
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from central.cli.exit_codes import CannotDo

if TYPE_CHECKING:
    from central.cli.jobs.api import Api

Command = Callable[["Api", argparse.Namespace], int]


def command(path: str) -> Command:
    """path: a module of this package and its function, such as mutate.delete."""
    module, _, function = path.partition(".")
    found: Command = getattr(importlib.import_module(f"central.cli.jobs.{module}"), function)
    return found


def with_api(path: str) -> Callable[[argparse.Namespace], int]:
    """The command as a function of its arguments. Raises CannotDo."""

    def run(args: argparse.Namespace) -> int:
        from central.cli.jobs.api import open_api, usual_namespace

        _set_chosen(args)
        if getattr(args, "filename", None):
            from central.cli.jobs import job_run

            args.objects = job_run.read(args.filename)  # before any server is asked
        namespace = getattr(args, "namespace", None)
        if getattr(args, "dry_run", False):
            from central.cli.jobs import job_run

            namespace = namespace or usual_namespace(args.kubeconfig, args.context)
            return job_run.show(namespace, args)
        with open_api(args.kubeconfig, args.context, namespace) as api:
            return command(path)(api, args)

    return run


def _set_chosen(args: argparse.Namespace) -> None:
    """args.chosen: the name, or the list of names for verbs that take several."""
    if not hasattr(args, "many"):
        return
    operands = args.names if isinstance(args.names, list) else [args.names] if args.names else []
    names = [*operands, *([args.flag_name] if args.flag_name else [])]
    verb = f"{args.kind} {args.verb}"
    if not names and not getattr(args, "filename", None) and not hasattr(args, "nameless"):
        raise CannotDo(f"name the {args.kind}: lockstep {verb} NAME")
    if len(names) > 1 and not args.many:
        raise CannotDo(f"{verb}: only one name is allowed, not {' and '.join(names)}")
    if names and getattr(args, "filename", None):
        raise CannotDo(f"{verb}: use either a name or --filename, not both")
    args.chosen = names if args.many else next(iter(names), "")

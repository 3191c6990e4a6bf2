"""The command `lockstep` (also `kubectl lockstep`): parses the arguments, runs the command, prints. An
error that the user can fix is one sentence and exit code 2.

Design: docs/design/command-line.md
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from central.cli import exit_codes, output_format, report_command, scheduler_access
from central.cli.exit_codes import CannotDo
from central.cli.jobs import completion, job_flags
from central.coordinator import coordinate_flags
from central.server import argtypes, settings
from central.server.argtypes import add_flag as flag
from central.server.grpc import query_client
from protos.common import command_output, logs, own_program
from protos.common.sentence_parser import SentenceParser
from protos.names import NAMESPACE
from protos.printing import error_lines

_CODES = {
    query_client.NOT_FOUND: exit_codes.NOT_FOUND,
    query_client.REFUSED: exit_codes.REFUSED,
    query_client.UNREACHABLE: exit_codes.UNREACHABLE,
}
MIGRATE_SOURCES = ("volcano", "kueue", "kube-scheduler")


def main(argv: Sequence[str] | None = None) -> int:
    # Silences gRPC's own log. gRPC reads this when it is imported, which is later.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    made = parser()
    completion.answer(made)
    given, words = _command(list(sys.argv[1:] if argv is None else argv))
    args = made.parse_args(given)
    if not hasattr(args, "run"):  # no command, or a noun without a verb
        args.helper.print_help(sys.stderr)
        return exit_codes.USAGE
    args.flags = given[1:]  # for processes that take the same
    if words:
        args.words = words
    try:
        return int(args.run(args))
    except CannotDo as error:
        return _fail(error, error.code)
    except query_client.CannotAsk as error:
        return _fail(error, _CODES.get(error.kind, exit_codes.USAGE))


class _Version(argparse.Action):
    """Looks the version up only when it is asked for, which takes longer than all the rest of a start."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        about = "show program's version number and exit"
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=about)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from central.server.version import version

        print(f"lockstep {version()}")
        parser.exit()


def complete() -> int:
    """The program kubectl_complete-lockstep, which kubectl runs to complete its plugin's arguments."""
    completion.for_kubectl(parser(), sys.argv[1:])
    return 0


def _command(argv: list[str]) -> tuple[list[str], list[str]]:
    """Splits off what follows --: the command of a job's pods. Only `job run` takes one."""
    if argv[:2] == ["job", "run"] and "--" in argv:
        at = argv.index("--")
        return argv[:at], argv[at + 1 :]
    return argv, []


def parser() -> argparse.ArgumentParser:
    called = Path(sys.argv[0]).name
    parser = SentenceParser(
        prog="kubectl lockstep" if called == "kubectl-lockstep" else "lockstep",
        description="Gang scheduler for GPU workloads on Kubernetes: starts all pods of a job together, on "
        "GPUs that are close in the NVLink and network topology, or none.",
    )
    parser.add_argument("--version", action=_Version)
    parser.set_defaults(helper=parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    settings.add_flags(_add(commands, "central", "run the scheduler", _central))
    about = "run three workloads on a local cluster of eight simulated nodes"
    demo = _add(commands, "demo", about, _demo)
    flag(demo, "--keep", "keep the cluster running until Ctrl-C")
    flag(demo, "--web", "serve the web console, print its address, and keep the cluster running")
    about = "port of the local API server"
    flag(demo, "--port PORT", about, type=argtypes.port, default=0, shown="any free port")
    _add_simulate(commands)
    _add_what_if(commands)
    about = "run the coordinator of one elastic job"
    coordinate_flags.add_flags(
        _add(commands, "coordinate", about, "central.coordinator.coordinate_command")
    )
    about = "replay a journal and compare the decisions"
    replay = _add(commands, "replay", about, _replay)
    about = "journal written by central or simulate with --journal"
    replay.add_argument("file", metavar="FILE", help=about)
    flag(replay, "--decisions-only", "compare no wording of reasons, and no Events")
    about = "find the fewest facts with which the scheduler still fails as in the journal, and print them"
    flag(replay, "--bisect", about)
    flag(
        replay,
        "--to FILE",
        "with --bisect: write these facts as a journal",
        default="",
        shown="none",
    )
    _add_asking(commands)
    about = (
        "show GPU-hours by queue, namespace, user, job or GPU model, from the scheduler's history"
    )
    report_command.add_flags(_add(commands, "report", about, report_command.run))
    _add_migrate(commands)
    _add_doctor(commands)
    job_flags.add(commands)
    about = "print the completion script of a shell: source <(lockstep completion bash)"
    shell = _add(commands, "completion", about, _completion)
    about = "bash, zsh or fish"
    shell.add_argument("shell", choices=completion.SHELLS, metavar="SHELL", help=about)
    return parser


def _add_asking(commands: Any) -> None:
    """Commands that ask the scheduler."""
    about = "show nodes, their GPUs, and the pods that use them"
    topology = _add(commands, "topology", about, _topology)
    about = "show only this node, with its topology matrix"
    node = topology.add_argument("node", nargs="?", default="", metavar="NODE", help=about)
    completion.names_of(node, "node")
    about = "only nodes in these domains, such as rack=r1,block=b2"
    flag(topology, "-l --selector LEVEL=NAME,...", about, type=argtypes.domains, default=None)
    about = "add up GPUs by levels of the topology and model, such as rack,model"
    shape = topology.add_mutually_exclusive_group()
    flag(shape, "--by KEY,...", about, type=argtypes.names, default=(), shown="none")
    flag(shape, "--picture", "draw racks, nodes and GPUs, with a letter for each owner")
    about = "show racks, queues and pending gangs, live"
    top = _add(commands, "top", about, "central.cli.top.top_command")
    flag(top, "--interval S", "seconds between two updates", type=argtypes.interval, default=2.0)
    scheduler_access.add_flags(top)
    about = "show why a gang is pending, or where it runs"
    explain = _add(commands, "explain", about, _explain)
    about = "job, PodGroup, pod or controller, such as deployment/web"
    gang = explain.add_argument("name", metavar="[NAMESPACE/]NAME", help=about)
    completion.names_of(gang, "gang")
    usual = "that of the context"
    space = flag(explain, "-n --namespace NAME", "namespace", default="", shown=usual)
    completion.names_of(space, "namespace")
    for asking in (topology, explain):
        scheduler_access.add_flags(asking)
        output_format.add(asking, output_format.OBJECTS)


def _add_doctor(commands: Any) -> None:
    about = "check an installation and its nodes, and say what to do; nothing is written"
    made = _add(commands, "doctor", about, "central.cli.doctor.doctor_command")
    about = "also write what to attach to a report, without credentials (a tar archive)"
    flag(made, "--bundle FILE", about, default="", shown="none")
    scheduler_access.add_kubeconfig(made)
    about = "namespace of the scheduler"
    flag(made, "--scheduler-namespace NAME", about, env="LOCKSTEP_NAMESPACE", default=NAMESPACE)
    output_format.add(made, output_format.FIGURES)


def _add_migrate(commands: Any) -> None:
    about = "prepare the move from another scheduler"
    made = commands.add_parser("migrate", help=about, description=f"{about[0].upper()}{about[1:]}.")
    verbs = made.add_subparsers(dest="verb", required=True, metavar="VERB")
    about = "read a cluster and say what would change; nothing is written"
    check = _add(verbs, "check", about, "central.cli.migrate.migrate_command")
    about = f"scheduler to migrate from: {', '.join(MIGRATE_SOURCES)}; all if none is named"
    check.add_argument(
        "source", nargs="*", choices=[*MIGRATE_SOURCES, []], metavar="SOURCE", help=about
    )
    scheduler_access.add_kubeconfig(check)
    output_format.add(check, output_format.FIGURES)


def _add_simulate(commands: Any) -> None:
    about = "run manifests through the scheduler in virtual time"
    simulate = _add(commands, "simulate", about, "central.simulator.simulate_command")
    about = "manifest files or directories; - is standard input"
    simulate.add_argument("paths", nargs="+", metavar="PATH", help=about)
    settings.add_scheduling_flags(simulate)
    about = "order of facts that arrive at the same time; 0: the order of the input"
    flag(simulate, "--seed N", about, type=argtypes.number, default=0)
    about = "stop at this virtual time, such as 90 (seconds) or 1h30m"
    shown = "when nothing more happens"
    flag(simulate, "--until SPAN", about, type=argtypes.span, default=None, shown=shown)
    about = "draw GPU usage by job and pending gangs over time (SVG)"
    flag(simulate, "--figure FILE", about, default=None)
    about = "record facts and decisions for lockstep replay"
    flag(simulate, "--journal FILE", about, default=None)
    output_format.add(simulate, output_format.FIGURES)


def _add_what_if(commands: Any) -> None:
    about = "simulate a change of the present cluster, and show what would be different"
    made = _add(commands, "what-if", about, "central.cli.what_if.what_if_command")
    many: dict[str, Any] = {"action": "append", "default": []}
    about = "no new pods on this node, or on the nodes of a domain such as rack=r1; may be repeated"
    completion.names_of(flag(made, "--cordon PLACE", about, **many), "node")
    about = "the same, and their pods start again elsewhere"
    completion.names_of(flag(made, "--drain PLACE", about, **many), "node")
    about = "GPUs in a queue's capability, deserved or guarantee, or its weight or priority; may be repeated"
    flag(made, "--queue NAME:FIELD=NUMBER", about, **many)
    flag(made, "--submit FILE", "create the objects of this file or directory", **many)
    about = "a job or gang that ends now; may be repeated"
    completion.names_of(flag(made, "--without [NAMESPACE/]NAME", about, **many), "gang")
    about = "look so far ahead, such as 90 (seconds) or 1h30m"
    flag(made, "--until SPAN", about, type=argtypes.span, default="24h")
    about = "namespace of names in --without"
    space = flag(made, "-n --namespace NAME", about, default=None, shown="that of the context")
    completion.names_of(space, "namespace")
    scheduler_access.add_flags(made)
    settings.add_scheduling_flags(made)
    output_format.add(made, output_format.FIGURES)


def _add(
    commands: Any, name: str, about: str, run: Callable[[argparse.Namespace], int] | str
) -> argparse.ArgumentParser:
    """run: the command, or the module whose run() it is, which is imported when it runs."""
    description = f"{about[0].upper()}{about[1:]}."
    made: argparse.ArgumentParser = commands.add_parser(name, help=about, description=description)
    made.set_defaults(run=partial(_imported, run) if isinstance(run, str) else run)
    return made


def _imported(module: str, args: argparse.Namespace) -> int:
    return int(importlib.import_module(module).run(args))


def _central(args: argparse.Namespace) -> int:
    from central.kube.transport.http_client import KubeconfigError
    from central.server import app, tls
    from central.server.grpc import grpc_server

    chosen = settings.settings(args)
    logs.configure(chosen.log_level, chosen.log_format)
    try:
        what_if = (*own_program.command("central.cli.what_if.worker"), *args.flags)
        return app.run(chosen, what_if)
    except (KubeconfigError, grpc_server.CannotStart, tls.UnusableCredentials) as error:
        return _fail(error)


def _demo(args: argparse.Namespace) -> int:
    if sys.platform != "linux":
        return _fail(
            "the demo runs node agents, so it needs Linux; `lockstep simulate` runs here, too"
        )
    try:
        from central.standalone import demo
    except ModuleNotFoundError as error:
        if error.name != "central.standalone":
            raise
        return _fail(f"the demo is not in this image: {command_output.INSTALL}")

    return demo.run(keep=args.keep, port=args.port, web=args.web)


def _replay(args: argparse.Namespace) -> int:
    from central.server import replay

    if args.bisect:
        if args.decisions_only:
            return _fail("--bisect compares nothing: leave out --decisions-only")
        return _bisect(args)
    if args.to:
        return _fail("--to needs --bisect, whose facts it writes")
    try:
        done = replay.replay(args.file, decisions_only=args.decisions_only)
    except replay.BadJournal as error:
        return _fail(error)
    except replay.Differs as error:
        print(f"{args.file}: decisions differ at {error}")
        return 1
    print(f"{done.cycles} cycles, {done.facts} facts: the same {done.decisions} decisions")
    if done.note:
        print(f"lockstep: {args.file}: {done.note}", file=sys.stderr)
    return 0


def _bisect(args: argparse.Namespace) -> int:
    from central.cli.bisect_journal import SmallestJournal
    from central.server.replay import BadJournal

    try:
        found = SmallestJournal(args.file)
    except (BadJournal, OSError) as error:
        return _fail(error)
    print(found.describe())  # it took long, so it is shown even if the file cannot be written
    try:
        if args.to:
            Path(args.to).write_bytes(found.text())
    except OSError as error:
        return _fail(f"--to {args.to}: {error.strerror}")
    return 0


def _completion(args: argparse.Namespace) -> int:
    print(completion.script(args.shell), end="")
    return 0


def _topology(args: argparse.Namespace) -> int:
    from central.cli import render

    try:
        reply = query_client.topology(scheduler_access.scheduler_address(args), args.node)
        if args.selector:
            reply = render.selected(reply, args.selector)
        sums = render.sums(reply, args.by) if args.by else []
    except query_client.CannotAsk as error:
        missing = args.node and error.kind == query_client.NOT_FOUND
        near = completion.hint("node", args.node, args) if missing else ""
        raise query_client.CannotAsk(f"{error}{near}", error.kind) from error
    except ValueError as error:
        return _fail(str(error))
    if args.by:
        whole = args.output in output_format.WHOLE
        print(
            output_format.written(sums, args.output) if whole else render.sums_table(sums), end=""
        )
    elif args.picture:
        print(render.topology_picture(reply), end="")
    elif args.output == "name":
        print("".join(f"node/{node.name}\n" for node in reply.nodes), end="")
    elif args.output in output_format.WHOLE:
        found = render.topology_json(reply, one=bool(args.node))
        print(output_format.written(found, args.output), end="")
        for problem in reply.troubles:
            print(problem, file=sys.stderr)
    else:
        print(render.topology_table(reply), end="")
    return 0


def _explain(args: argparse.Namespace) -> int:
    from central.cli import render

    # train, team-a/train, deployment/web or team-a/deployment/web
    parts = args.name.split("/")
    if len(parts) > 3 or not all(parts):
        return _fail(f'explain: "{args.name}" is not [NAMESPACE/][KIND/]NAME')
    meanings = [(args.namespace or _usual_namespace(args), args.name)] if len(parts) < 3 else []
    if len(parts) > 1:
        meanings.insert(0, (parts[0], "/".join(parts[1:])))
    where = scheduler_access.scheduler_address(args)
    for namespace, name in meanings:
        reply = query_client.explain(where, namespace, name)
        if reply.found:
            break
    if not reply.found:
        args.namespace, short = meanings[0]
        near = completion.hint("gang", short, args)
        return _fail(f"no gang or pod named {args.namespace}/{short}{near}", exit_codes.NOT_FOUND)
    if args.output == "name":
        print(f"{reply.namespace}/{reply.name}")
    elif args.output in output_format.WHOLE:
        print(output_format.written(render.explanation_json(reply), args.output), end="")
    else:
        print(render.explanation_table(reply), end="")
    return 0


def _usual_namespace(args: argparse.Namespace) -> str:
    from central.kube.transport.configuration import KubeconfigError, load_user_config

    try:
        return load_user_config(args.kubeconfig, args.context)[1]
    except KubeconfigError:  # none is needed where the scheduler is named
        return "default"


def _fail(why: object, code: int = exit_codes.USAGE) -> int:
    print(f"lockstep: {error_lines(str(why))}", file=sys.stderr)
    return code

"""The command `lockstep` (and `kubectl lockstep`): reads what was typed, calls what does it, prints.
What goes wrong for a reason that the user can mend is one sentence and exit code 2."""

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from central.cli.jobs import completion, job_flags
from central.server import argtypes, settings
from central.server.grpc import query_client
from protos.common import logs


def main(argv: Sequence[str] | None = None) -> int:
    # gRPC's own chatter is not for users; it is read when gRPC is imported, which is later.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    made = parser()
    completion.answer(made)
    given, words = _command(list(sys.argv[1:] if argv is None else argv))
    args = made.parse_args(given)
    if words:
        args.words = words
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # whoever read us has gone; nothing to say, and nobody to say it to
        return 1


class _Parser(argparse.ArgumentParser):
    """What can't be understood is one sentence that helps."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:  # said by the command that it was typed for
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        if wrong := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            near = get_close_matches(wrong[1], [c.strip("' ") for c in wrong[2].split(",")], 1)
            message += f"; did you mean {near[0]}?" if near else ""
        elif message.startswith("unrecognized arguments: "):
            near = get_close_matches(message.split()[2], self._option_string_actions, 1)
            message += f"; did you mean {near[0]}?" if near else ""
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help tells more\n")


def complete() -> int:
    """The program kubectl_complete-lockstep, which kubectl asks for its plugin."""
    completion.for_kubectl(parser(), sys.argv[1:])
    return 0


def _command(argv: list[str]) -> tuple[list[str], list[str]]:
    """What follows -- is what a job's pods run; nothing else takes any."""
    if argv[:2] == ["job", "run"] and "--" in argv:
        at = argv.index("--")
        return argv[:at], argv[at + 1 :]
    return argv, []


def parser() -> argparse.ArgumentParser:
    called = Path(sys.argv[0]).name
    parser = _Parser(
        prog="kubectl lockstep" if called == "kubectl-lockstep" else "lockstep",
        description="Gangs of GPU pods on Kubernetes: all start, close together, or none does.",
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    central = _add(commands, "central", "run the scheduler")
    settings.add_flags(central)
    central.set_defaults(run=_central)

    demo = _add(commands, "demo", "a cluster in a box: eight nodes, three workloads")
    demo.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")
    demo.add_argument(
        "--port", type=argtypes.port, default=0, help="of the API (default: any free one)"
    )
    demo.set_defaults(run=_demo)

    simulate = _add(
        commands,
        "simulate",
        "what would become of manifests: the same decisions, on virtual time",
    )
    simulate.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="files or folders of manifests; - is standard input",
    )
    settings.add_scheduling_flags(simulate)
    simulate.add_argument(
        "--seed",
        type=argtypes.number,
        metavar="N",
        default=0,
        help="the order in which news of one moment come in (0: as asked)",
    )
    simulate.add_argument(
        "--until", metavar="SPAN", help="stop at this virtual time: 90 (seconds), 1h30m"
    )
    simulate.add_argument(
        "--figure", metavar="FILE", help="also draw it: GPUs over time by job, and who waits (SVG)"
    )
    simulate.add_argument(
        "--journal", metavar="FILE", help="write down what is told and decided, for lockstep replay"
    )
    _output(simulate)
    simulate.set_defaults(run=_simulate)

    replay = _add(commands, "replay", "whether a journal's facts give the same decisions again")
    replay.add_argument(
        "file", metavar="FILE", help="that central or simulate wrote with --journal"
    )
    replay.add_argument(
        "--check", action="store_true", help="look at every promise of the core after every turn"
    )
    replay.set_defaults(run=_replay)

    topology = _add(commands, "topology", "what the nodes look like, and who holds what")
    topology.add_argument("node", nargs="?", default="", metavar="NODE", help="only this one")
    topology.set_defaults(run=_topology)

    explain = _add(commands, "explain", "why a gang waits, or where it went")
    explain.add_argument(
        "name",
        metavar="[NAMESPACE/]NAME",
        help="of a job, a gang, a pod, or a controller (deployment/web)",
    )
    explain.add_argument(
        "-n", "--namespace", default="default", help="where it is (default %(default)s)"
    )
    explain.set_defaults(run=_explain)

    job_flags.add(commands)
    shell = _add(commands, "completion", "for your shell: source <(lockstep completion bash)")
    shell.add_argument("shell", choices=completion.SHELLS, help="which one")
    shell.set_defaults(run=_completion)

    for asks in (topology, explain):
        query_client.add_flags(asks)
        _output(asks)
    return parser


def _add(commands: Any, name: str, what: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}."
    )
    return made


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="for people or for programs (default table)",
    )


def _central(args: argparse.Namespace) -> int:
    from central.kube.transport.http_client import KubeconfigError
    from central.server import app, tls
    from central.server.grpc import grpc_server

    chosen = settings.settings(args)
    logs.configure(chosen.log_level, chosen.log_format)
    try:
        return app.run(chosen)
    except (KubeconfigError, grpc_server.CannotStart, tls.UnusableCredentials) as error:
        return _fail(error)


def _demo(args: argparse.Namespace) -> int:
    from central.standalone import demo

    return demo.run(keep=args.keep, port=args.port)


def _simulate(args: argparse.Namespace) -> int:
    from central.simulator import simulate_command

    return simulate_command.run(args)


def _replay(args: argparse.Namespace) -> int:
    from central.server import replay

    try:
        done = replay.replay(args.file, check=args.check)
    except replay.BadJournal as error:
        return _fail(error)
    except replay.Differs as error:
        print(f"{args.file} is decided differently from {error}")
        return 1
    print(f"{done.turns} turns, {done.facts} facts: the same {done.decisions} decisions")
    if done.note:
        print(f"lockstep: {args.file}: {done.note}", file=sys.stderr)
    return 0


def _completion(args: argparse.Namespace) -> int:
    print(completion.script(args.shell), end="")
    return 0


def _topology(args: argparse.Namespace) -> int:
    from central.cli import render

    try:
        reply = query_client.topology(query_client.endpoint(args), args.node)
    except query_client.CannotAsk as error:
        return _fail(error)
    if args.output == "json":
        print(json.dumps(render.topology_json(reply, one=bool(args.node)), indent=1))
        for trouble in reply.troubles:
            print(trouble, file=sys.stderr)
    else:
        print(render.topology_table(reply), end="")
    return 0


def _explain(args: argparse.Namespace) -> int:
    from central.cli import render

    # train, team-a/train, deployment/web or team-a/deployment/web
    parts = args.name.split("/")
    if len(parts) > 3 or not all(parts):
        return _fail(
            f'explain: "{args.name}" is not NAME, KIND/NAME or one of these after NAMESPACE/'
        )
    asked = [(args.namespace, args.name)] if len(parts) < 3 else []
    if len(parts) > 1:
        asked.insert(0, (parts[0], "/".join(parts[1:])))
    try:
        for namespace, name in asked:
            reply = query_client.explain(query_client.endpoint(args), namespace, name)
            if reply.found:
                break
    except query_client.CannotAsk as error:
        return _fail(error)
    if not reply.found:
        return _fail(f"no gang or pod {'/'.join(asked[0])}")
    if args.output == "json":
        print(json.dumps(render.explanation_json(reply), indent=1))
    else:
        print(render.explanation_table(reply), end="")
    return 0


def _fail(why: object) -> int:
    print(f"lockstep: {why}", file=sys.stderr)
    return 2


def _version() -> str:
    try:
        return f"lockstep {metadata.version('lockstep')}"
    except metadata.PackageNotFoundError:
        return "lockstep, not installed"

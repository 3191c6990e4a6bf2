"""What can be typed after `lockstep job`, `queue` and `group`."""

import argparse
from typing import Any

from central.cli.jobs import completion, dispatch, job_argtypes

OUTPUTS = ("table", "wide", "json", "yaml", "name")
Commands = Any  # argparse names this type with an underscore


def add(commands: Commands) -> None:
    _jobs(_group(commands, "job", "jobs: run, list, view, watch, logs, suspend, resume, delete"))
    _queues(_group(commands, "queue", "queues: create, list, view, operate, delete"))
    _groups(_group(commands, "group", "gangs (PodGroups): list, view, delete"))


def _group(commands: Commands, name: str, what: str) -> Commands:
    parser = commands.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
    return parser.add_subparsers(dest="verb", required=True, metavar="VERB")


def _verb(verbs: Commands, word: str, kind: str, what: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        word, help=what, description=what[0].upper() + what[1:] + "."
    )
    parser.add_argument("-k", "--kubeconfig", metavar="FILE", help="default: as kubectl finds it")
    parser.add_argument("--context", metavar="NAME", help="of the kubeconfig")
    if kind != "queue":
        space = parser.add_argument("-n", "--namespace", help="default: the context's")
        completion.of(space, "namespace")
    parser.set_defaults(run=dispatch.saying(run), kind=kind)
    return parser


def _names(parser: argparse.ArgumentParser, kind: str, nargs: str | None) -> None:
    """As an argument, or after the flag that this API's tools have for it."""
    own = parser.get_default("kind")
    flags = ("-n", "-N", "--name") if own == "queue" else ("-N", "--name")
    places = parser.add_argument(
        "names", nargs=nargs or "?", metavar="NAME", type=job_argtypes.name
    )
    flag = parser.add_argument(
        *flags, dest="flag_name", metavar="NAME", type=job_argtypes.name, help=argparse.SUPPRESS
    )
    parser.set_defaults(many=nargs is not None)
    for action in (places, flag):
        completion.of(action, kind)


def _output(parser: argparse.ArgumentParser, *without: str) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=[one for one in OUTPUTS if one not in without],
        default="table",
        help="default table, in columns",
    )


def _list(verbs: Commands, kind: str, what: str) -> argparse.ArgumentParser:
    parser = _verb(verbs, "list", kind, what, dispatch.show_list)
    _output(parser)
    parser.add_argument("-w", "--watch", action="store_true", help="go on: a row for each change")
    parser.add_argument("-l", "--selector", default="", metavar="KEY=VALUE,...", help="by labels")
    if kind != "queue":
        parser.add_argument(
            "-A", "--all-namespaces", dest="everywhere", action="store_true", help="not only one"
        )
        queue = parser.add_argument(
            "-q", "--queue", default="", metavar="NAME", help="of this queue"
        )
        completion.of(queue, "queue")
    else:
        parser.set_defaults(everywhere=True, queue="")
    return parser


def _jobs(verbs: Commands) -> None:
    run = _verb(verbs, "run", "job", "run a job, from flags or from a file", dispatch.run_job)
    _names(run, "", None)
    file = run.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        help="everything in this file or folder; - is standard input",
    )
    completion.files(file)
    run.add_argument("-i", "--image", default="busybox", help="default busybox")
    run.add_argument(
        "-r", "--replicas", type=job_argtypes.count, default=1, metavar="N", help="pods (default 1)"
    )
    run.add_argument(
        "-m",
        "--min",
        type=job_argtypes.count,
        metavar="N",
        help="so many start at once, or none (default: all)",
    )
    run.add_argument(
        "-g", "--gpus", type=job_argtypes.count, default=0, metavar="N", help="of each pod"
    )
    run.add_argument(
        "-R",
        "--requests",
        type=job_argtypes.amounts,
        default="cpu=1000m,memory=100Mi",
        metavar="NAME=AMOUNT,...",
        help="of each pod (default %(default)s)",
    )
    run.add_argument(
        "-L",
        "--limits",
        type=job_argtypes.amounts,
        default="",
        metavar="NAME=AMOUNT,...",
        help="of each pod (default: none)",
    )
    run.add_argument(
        "-e",
        "--env",
        type=job_argtypes.pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of each pod; may be repeated",
    )
    queue = run.add_argument(
        "-q",
        "--queue",
        default="default",
        metavar="NAME",
        help="whose room it takes (default: default)",
    )
    completion.of(queue, "queue")
    run.add_argument(
        "-S",
        "--scheduler",
        default="lockstep",
        metavar="NAME",
        help="who places it (default lockstep)",
    )
    run.add_argument("--priority", default="", metavar="CLASS", help="a PriorityClass")
    run.add_argument(
        "--task",
        default="worker",
        type=job_argtypes.name,
        metavar="NAME",
        help="what its pods are called (default worker)",
    )
    run.add_argument(
        "--plugin", action="append", default=[], metavar="NAME", help="svc, ssh, pytorch, ..."
    )
    run.add_argument(
        "--within",
        default="",
        metavar="LEVEL",
        help="the widest that it may span: island, node, or a level's label key",
    )
    run.add_argument("--dry-run", action="store_true", help="only print the manifest")
    run.usage = "%(prog)s NAME [FLAGS] [-- COMMAND ...] | -f FILE"
    run.set_defaults(words=[])

    _list(verbs, "job", "list jobs")
    view = _verb(
        verbs,
        "view",
        "job",
        "show a job with its pods, its events, and why it waits",
        dispatch.show_one,
    )
    _names(view, "job", None)
    _output(view, "wide", "name")
    watch = _verb(
        verbs,
        "watch",
        "job",
        "follow a job until it ends; exit code 0 if it is Completed",
        dispatch.watch_job,
    )
    _names(watch, "job", None)
    logs = _verb(
        verbs, "logs", "job", "show what a job's pods print, with their tasks", dispatch.show_logs
    )
    _names(logs, "job", None)
    logs.add_argument("-f", "--follow", action="store_true", help="until the job ends")
    logs.add_argument("-t", "--task", default="", metavar="NAME", help="only of this task")
    logs.add_argument("-c", "--container", default="", metavar="NAME", help="default: all")
    logs.add_argument(
        "--tail", type=int, default=-1, metavar="N", help="only the last lines of each"
    )
    logs.add_argument("--timestamps", action="store_true", help="before each line")
    logs.add_argument(
        "-p", "--previous", action="store_true", help="of containers before they restarted"
    )
    for word, action, what in (
        ("suspend", "AbortJob", "stop jobs; they keep their place in the API and can be resumed"),
        ("resume", "ResumeJob", "start suspended jobs again"),
    ):
        parser = _verb(verbs, word, "job", what, dispatch.command)
        parser.set_defaults(action=action)
        _names(parser, "job", "*")
    delete = _verb(verbs, "delete", "job", "delete jobs with all that is theirs", dispatch.delete)
    _names(delete, "job", "*")


def _queues(verbs: Commands) -> None:
    create = _verb(verbs, "create", "queue", "create a queue", dispatch.create_queue)
    _names(create, "", None)
    _spec(create, weight=1)
    create.add_argument(
        "-S", "--state", choices=("Open", "Closed"), default="Open", help="default Open"
    )
    create.add_argument(
        "--priority",
        type=job_argtypes.count,
        metavar="N",
        help="the queue with the higher one is served first",
    )
    create.add_argument(
        "--keep", action="store_true", help="what it uses above its share is not taken back"
    )
    _list(verbs, "queue", "list queues, with their gangs by phase")
    for word in ("view", "get"):
        view = _verb(verbs, word, "queue", "show a queue", dispatch.show_one)
        _names(view, "queue", None)
        _output(view, "wide", "name")
    operate = _verb(
        verbs,
        "operate",
        "queue",
        "open or close a queue, or change what it may use",
        dispatch.operate_queue,
    )
    _names(operate, "queue", None)
    operate.add_argument(
        "-a",
        "--action",
        choices=("open", "close", "update"),
        required=True,
        help="start gangs again, start none, or change the numbers below",
    )
    _spec(operate, weight=None)
    delete = _verb(verbs, "delete", "queue", "delete queues", dispatch.delete)
    _names(delete, "queue", "*")


def _spec(parser: argparse.ArgumentParser, weight: int | None) -> None:
    parser.add_argument(
        "-w",
        "--weight",
        type=job_argtypes.count,
        default=weight,
        metavar="N",
        help="its part of what is left (1 to 65535)",
    )
    for flag, what in (
        ("--capability", "the most that it may use"),
        ("--deserved", "its own, lent while it does not ask"),
        ("--guarantee", "kept free for it"),
    ):
        parser.add_argument(
            flag, type=job_argtypes.amounts, default="", metavar="NAME=AMOUNT,...", help=what
        )
    above = parser.add_argument("--parent", default="", metavar="NAME", help="the queue above it")
    completion.of(above, "queue")


def _groups(verbs: Commands) -> None:
    _list(verbs, "group", "list gangs that have a PodGroup")
    view = _verb(
        verbs,
        "view",
        "group",
        "show a gang with its pods, its events, and why it waits",
        dispatch.show_one,
    )
    _names(view, "group", None)
    _output(view, "wide", "name")
    delete = _verb(verbs, "delete", "group", "delete PodGroups (their pods stay)", dispatch.delete)
    _names(delete, "group", "*")

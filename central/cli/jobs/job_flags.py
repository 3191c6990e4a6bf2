"""The verbs of `lockstep job`, `queue` and `group` and their flags. Each flag is one row of a table: how
it is typed, what it means, and what differs from a text that is empty by default."""

import argparse
import re
from typing import Any

from central.cli import output_format, scheduler_access
from central.cli.jobs import completion, dispatch
from central.server import argtypes
from central.server.grpc import query_client

Commands = Any  # argparse's own type for them is private
Flag = tuple[str, str, dict[str, Any]]
AMOUNTS = "NAME=AMOUNT,..."
NAME_MOST = 253
MOST_SECONDS = 2**31 - 1
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def name(text: str) -> str:
    if len(text) > NAME_MOST:
        raise ValueError(f'"{text[:20]}..." has {len(text)} characters: {NAME_MOST} are allowed')
    if not _NAME.fullmatch(text):
        raise ValueError(
            f'"{text}" is not a name: use small letters, digits, - and ., with a letter or digit at '
            "both ends"
        )
    return text


def count(text: str) -> int:
    return argtypes.integer(text, 0, 10**9 - 1, "a whole number of 0 or more")


def pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise ValueError(f'"{text}" is not NAME=VALUE')
    return name, value


def job_state(text: str) -> str:
    from central.model.jobspec import PHASES  # imports numpy, which other commands do without

    if text and text.capitalize() not in (*PHASES, "Ended"):
        raise ValueError(f"'{text}' is not one of {', '.join(PHASES)}, ended")
    return text.lower()


def duration(text: str) -> str:
    from central.kube.decode.quantities import parse_duration

    parse_duration(text)
    return text


def time_limit(text: str) -> str:
    from central.kube.decode.quantities import parse_duration

    seconds = parse_duration(duration(text))
    if not 1 <= seconds <= MOST_SECONDS:
        raise ValueError(f'"{text}" is not between 1s and {MOST_SECONDS} s')
    return text


def memory(text: str) -> str:
    return amounts(f"memory={text}")[0][1]


def mounted(text: str) -> tuple[str, str, bool]:
    claim, path, *mode = text.split(":")[:3] if text.count(":") in (1, 2) else ("", "")
    if not path.startswith("/") or mode not in ([], ["ro"]):
        raise ValueError(f'"{text}" is not CLAIM:/PATH or CLAIM:/PATH:ro')
    return name(claim), path, bool(mode)


def amounts(text: str) -> list[tuple[str, str]]:
    from central.kube.decode.fields import parsed
    from central.kube.decode.quantities import parse_quantity

    pairs = [pair(part.strip()) for part in text.split(",") if part.strip()]
    for name, value in pairs:
        parsed(name, parse_quantity, name, value)
    return pairs


COMMON: tuple[Flag, ...] = (
    ("-k --kubeconfig FILE", "kubeconfig file", {"default": None, "shown": "as for kubectl"}),
    ("--context NAME", "context of the kubeconfig", {"default": None, "shown": "its current one"}),
)
NAMESPACE: Flag = (
    "-n --namespace NAME",
    "namespace",
    {"default": None, "shown": "that of the context", "complete": "namespace"},
)
RUN: tuple[Flag, ...] = (
    (
        "-f --filename FILE",
        "create the objects of this file or directory; - is standard input",
        {"complete": "file"},
    ),
    ("-i --image IMAGE", "container image", {"default": "busybox"}),
    ("-r --replicas N", "number of pods", {"type": argtypes.whole, "default": 1}),
    (
        "-m --min N",
        "minimum number of pods that must start together",
        {"type": count, "default": None, "shown": "all"},
    ),
    ("-g --gpus N", "GPUs per pod", {"type": count, "default": 0}),
    (
        f"-R --requests {AMOUNTS}",
        "resource requests per pod",
        {"type": amounts, "default": "cpu=1000m,memory=100Mi"},
    ),
    (f"-L --limits {AMOUNTS}", "resource limits per pod", {"type": amounts, "shown": "none"}),
    (
        "-e --env NAME=VALUE",
        "environment variable of each pod; may be repeated",
        {"type": pair, "action": "append", "default": []},
    ),
    ("-q --queue NAME", "queue to submit to", {"default": "default", "complete": "queue"}),
    ("-S --scheduler NAME", "schedulerName of the pods", {"default": "lockstep"}),
    ("--priority CLASS", "PriorityClass of the job", {"shown": "none"}),
    (
        "--task NAME",
        "name of the task, which becomes part of the pods' names",
        {"type": name, "default": "worker"},
    ),
    (
        "--plugin NAME",
        "Job plugin, such as svc, ssh or pytorch; may be repeated",
        {"action": "append", "default": [], "complete": "plugin"},
    ),
    (
        "--within LEVEL",
        "widest topology level that the job may span: one of island, numa, pcie-switch, node, or "
        "a level's label key",
        {"shown": "any", "complete": "level"},
    ),
    (
        "--runs-for TIME",
        "expected run time, such as 90s or 1h30m: the job may use capacity that is reserved for a later start, and the "
        "start of jobs behind it can be told",
        {"type": duration, "default": None, "shown": "unknown"},
    ),
    (
        "--time-limit TIME",
        "terminate the job this long after its start; also its expected run time where --runs-for is missing",
        {"type": time_limit, "default": None, "shown": "none"},
    ),
    (
        "--gpu-model MODELS",
        "only nodes with one of these GPU models, such as H100,A100*80GB",
        {"shown": "any"},
    ),
    (
        "--shm SIZE",
        "shared memory at /dev/shm, such as 16Gi: PyTorch's loaders and NCCL need it",
        {"type": memory, "default": None, "shown": "that of the runtime, mostly 64Mi"},
    ),
    (
        "--volume CLAIM:/PATH",
        "PersistentVolumeClaim to mount in each pod, read-only with CLAIM:/PATH:ro; may be repeated",
        {"type": mounted, "action": "append", "default": []},
    ),
    (
        "--annotation NAME=VALUE",
        "annotation of the job, such as volcano.sh/preemptable=false; may be repeated",
        {"type": pair, "action": "append", "default": []},
    ),
    (
        "--wait",
        "create nothing that can't start, and wait until every job has ended: exit code 0 if all "
        "are Completed, 1 if one is not or can never start",
        {},
    ),
    ("--follow", "follow the output of the job's pods until it ends; exit code as with --wait", {}),
    ("--dry-run", "print the manifest and create nothing", {}),
)
LIST: tuple[Flag, ...] = (
    ("-w --watch", "after the list, print a row for each change", {}),
    ("-l --selector KEY=VALUE,...", "label selector", {}),
)
LIST_NAMESPACED: tuple[Flag, ...] = (
    ("-A --all-namespaces", "list the objects of all namespaces", {"dest": "everywhere"}),
    ("-q --queue NAME", "only of this queue", {"complete": "queue"}),
)
LIST_JOBS: tuple[Flag, ...] = (
    (
        "--state STATE",
        "only jobs in this state, such as Running or Pending; ended: those of a week",
        {"type": job_state, "default": ""},
    ),
    ("--user NAME", "only jobs that this user created (with the component users)", {}),
)
LOGS: tuple[Flag, ...] = (
    ("-f --follow", "follow the output until the job ends", {}),
    ("-t --task NAME", "only pods of this task", {}),
    ("-c --container NAME", "only this container", {"shown": "all"}),
    (
        "--tail N",
        "number of lines to show from the end of each log",
        {"type": count, "default": None, "shown": "all"},
    ),
    ("--timestamps", "begin each line with its time", {}),
    ("-p --previous", "show the previous instance of containers that restarted", {}),
)
QUEUE: tuple[Flag, ...] = (
    (f"--capability {AMOUNTS}", "upper limit of the queue's usage", {"type": amounts}),
    (
        f"--deserved {AMOUNTS}",
        "amount that belongs to the queue; others may borrow it until it is needed",
        {"type": amounts},
    ),
    (f"--guarantee {AMOUNTS}", "amount kept free for the queue, even while unused", {"type": amounts}),
    ("--parent NAME", "parent queue", {"complete": "queue"}),
)  # fmt: skip
WEIGHT = "weight for capacity left after guaranteed and deserved amounts (1 to 65535)"
QUEUE_CREATE: tuple[Flag, ...] = (
    ("-w --weight N", WEIGHT, {"type": count, "default": 1}),
    *QUEUE,
    ("-S --state", "initial state", {"choices": ("Open", "Closed"), "default": "Open"}),
    (
        "--priority N",
        "queues with a higher priority are served first",
        {"type": count, "default": None, "shown": "0"},
    ),
    ("--keep", "make the queue non-reclaimable", {}),
)
QUEUE_OPERATE: tuple[Flag, ...] = (
    (
        "-a --action",
        "open: start gangs again; close: start no more gangs; update: apply the flags below",
        {"choices": ("open", "close", "update"), "default": None, "required": True},
    ),
    ("-w --weight N", WEIGHT, {"type": count, "default": None}),
    *QUEUE,
)


def add(commands: Commands) -> None:
    _jobs(_group(commands, "job", "run, list, view, follow, suspend, resume and delete jobs"))
    _queues(_group(commands, "queue", "create, list, view, change and delete queues"))
    _groups(_group(commands, "group", "list, view and delete gangs (PodGroups)"))


def _jobs(verbs: Commands) -> None:
    run = _verb(verbs, "run", "job", "run a job, from flags or from manifests", "job_run.run", RUN)
    _names(run, "", None)
    run.usage = "%(prog)s NAME [FLAGS] [-- COMMAND ...] | -f FILE"
    run.set_defaults(words=[])
    _list(verbs, "job", "list jobs")
    _view(verbs, "view", "job", "show a job with its pods, its events, and why it is pending")
    about = (
        "show what happened to a job: when, why, where, and its GPU-hours; also of one that is gone; "
        "without NAME: what happened to all jobs, nodes and queues within a day, latest first"
    )
    history = _verb(verbs, "history", "job", about, "history_command.show")
    history.set_defaults(nameless=True)
    _names(history, "job", None)
    scheduler_access.add_scheduler(history)
    output_format.add(history, output_format.FIGURES)
    watch = "print each change of a job until it ends; exit code 0 if it is Completed, else 1"
    _names(_verb(verbs, "watch", "job", watch, "follow.watch"), "job", None)
    logs = _verb(verbs, "logs", "job", "print the output of a job's pods", "follow.logs", LOGS)
    _names(logs, "job", None)
    for verb, action, about in (
        ("suspend", "AbortJob", "suspend jobs: delete their pods, and keep the jobs for resume"),
        ("resume", "ResumeJob", "resume suspended jobs"),
    ):
        parser = _verb(verbs, verb, "job", about, "mutate.command")
        parser.set_defaults(action=action)
        _names(parser, "job", "*")
    delete = _verb(verbs, "delete", "job", "delete jobs and their pods", "mutate.delete")
    _names(delete, "job", "*")


def _queues(verbs: Commands) -> None:
    about = "create a queue"
    create = _verb(verbs, "create", "queue", about, "mutate.create_queue", QUEUE_CREATE)
    _names(create, "", None)
    _list(verbs, "queue", "list queues, with their gangs by phase")
    for verb in ("view", "get"):
        _view(verbs, verb, "queue", "show a queue")
    about = "show the queues as a tree, with their GPUs"
    tree = _verb(verbs, "tree", "queue", about, "tree_command.show")
    query_client.add_flags(tree)
    output_format.add(tree, output_format.FIGURES)
    about = "open or close a queue, or change its limits"
    operate = _verb(verbs, "operate", "queue", about, "mutate.operate_queue", QUEUE_OPERATE)
    _names(operate, "queue", None)
    delete = _verb(verbs, "delete", "queue", "delete queues", "mutate.delete")
    _names(delete, "queue", "*")


def _groups(verbs: Commands) -> None:
    _list(verbs, "group", "list gangs that have a PodGroup")
    _view(verbs, "view", "group", "show a gang with its pods, its events, and why it is pending")
    about = "delete PodGroups; their pods stay"
    _names(_verb(verbs, "delete", "group", about, "mutate.delete"), "group", "*")


def _group(commands: Commands, name: str, about: str) -> Commands:
    parser = commands.add_parser(name, help=about, description=_sentence(about))
    parser.set_defaults(helper=parser)
    return parser.add_subparsers(dest="verb", metavar="VERB")


def _sentence(about: str) -> str:
    return f"{about[0].upper()}{about[1:]}."


def _list(verbs: Commands, kind: str, about: str) -> None:
    parser = _verb(verbs, "list", kind, about, "list_command.show", LIST)
    if kind == "queue":
        parser.set_defaults(everywhere=True, queue="")
        query_client.add_flags(parser)
    else:
        _flags(parser, LIST_NAMESPACED + (LIST_JOBS if kind == "job" else ()))
    if kind == "job":
        scheduler_access.add_scheduler(parser)
    output_format.add(parser, output_format.OBJECTS)


def _view(verbs: Commands, verb: str, kind: str, about: str) -> None:
    parser = _verb(verbs, verb, kind, about, "describe.show")
    _names(parser, kind, None)
    if kind in ("job", "queue"):
        query_client.add_flags(parser)
    output_format.add(parser, output_format.OBJECTS)


def _verb(
    verbs: Commands, verb: str, kind: str, about: str, path: str, *tables: tuple[Flag, ...]
) -> argparse.ArgumentParser:
    """path: as for dispatch.command."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        verb, help=about, description=_sentence(about)
    )
    parser.set_defaults(run=dispatch.with_api(path), path=path, kind=kind)
    _flags(parser, (*COMMON, *(() if kind == "queue" else (NAMESPACE,))))
    for table in tables:
        _flags(parser, table)
    return parser


def _flags(parser: argparse.ArgumentParser, table: tuple[Flag, ...]) -> None:
    for typed, about, given in table:
        more = dict(given)
        kind = more.pop("complete", "")
        action = argtypes.add_flag(parser, typed, about, **more)
        if kind:
            completion.names_of(action, kind)


def _names(parser: argparse.ArgumentParser, kind: str, nargs: str | None) -> None:
    """An operand, or the flag that the API's other clients have for it. nargs "*": several names."""
    own = parser.get_default("kind")
    flags = ("-n", "-N", "--name") if own == "queue" else ("-N", "--name")
    operand = parser.add_argument(
        "names", nargs=nargs or "?", metavar="NAME", type=name, help=f"name of the {own}"
    )
    flag = parser.add_argument(
        *flags, dest="flag_name", metavar="NAME", type=name, help=argparse.SUPPRESS
    )
    parser.set_defaults(many=nargs is not None)
    for action in (operand, flag):
        completion.names_of(action, kind)

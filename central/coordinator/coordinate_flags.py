"""The flags of `lockstep coordinate`, apart from what runs it: every command's start reads them."""

import argparse
from collections.abc import Callable

from central.model import limits
from central.model.defaults import HANG_POLICIES, TASKS_FAILED_MOST
from central.server import argtypes
from central.server.argtypes import add_flag as flag

SCHEDULER_TOKEN = "/var/run/secrets/lockstep/scheduler/token"

_PATIENCE = {  # with the default in seconds
    "--join-wait": ("wait for members at the start, and for newcomers to acknowledge", 30.0),
    "--gather": ("wait for further newcomers before a growth is proposed", 30.0),
    "--silent": ("a process that is silent for this long is lost", 30.0),
    "--answer": ("the same, from when a member says that no step ends; 0: never", 5.0),
    "--ended": ("the same, if the scheduler says that its pod ended", 10.0),
    "--below": ("with fewer than the least size for this long the Job is over", 600.0),
    "--linger": ("serve for this long after the Job is over, so that members learn of it", 10.0),
    "--stuck": ("a member that does not acknowledge for this long is given up; 0: never", 0.0),
    "--preflight": (
        "members check their pairs before they start, for at most this long; 0: never",
        0.0,
    ),
    "--replace-slow": (
        "the pod of a member for which the others wait so long is replaced; 0: none",
        0.0,
    ),
    "--hang-after": ("at least, or ten usual steps, without a step is a hang; 0: never", 60.0),
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    about = "the Job, as NAMESPACE/NAME/UID; a store is used by this Job only"
    flag(parser, "--job NAME", about, type=_job, default=None, required=True)
    about = "address of the HTTP interface"
    flag(parser, "--listen HOST:PORT", about, default="0.0.0.0:28700")
    about = "file with the token that members send"
    flag(parser, "--token-file FILE", about, required=True)
    about = "folder with tls.crt and tls.key; none: plain HTTP, for tests on one machine"
    flag(parser, "--tls-dir DIR", about, default="")
    about = "api (a ConfigMap that the scheduler writes), file:PATH (SQLite), or none: lost with the process"
    flag(parser, "--store STORE", about, type=store, default="none")
    about = "the Job fails when more than this part of a queue's tasks is set aside in an epoch; 1: never"
    flag(parser, "--task-failed-most PART", about, type=argtypes.share, default=TASKS_FAILED_MOST)
    about = "folder with the scheduler's address and ca.crt; the scheduler decides the sizes; none: no scheduler"
    flag(parser, "--scheduler-dir DIR", about, default="")
    about = "file with the token for the scheduler, which is bound to this pod"
    flag(parser, "--scheduler-token-file FILE", about, default=SCHEDULER_TOKEN)
    about = "JSON file with the members to train with, read again when it changes; for runs without a scheduler"
    flag(parser, "--plan FILE", about, default="")
    about = "what follows for the members that cause a hang: warn, or replace them as lost ones"
    flag(parser, "--on-hang POLICY", about, choices=HANG_POLICIES, default=HANG_POLICIES[0])
    for typed, about, least, default in (
        ("--least N", "least size", 1, 1),
        ("--most N", "most members; their numbers are below it", 1, 1024),
        (
            "--replica N",
            "members that hold the state together, and come and go together; 0: not known",
            0,
            0,
        ),
        ("--spares N", "members that wait to replace a lost one", 0, 0),
        ("--leader-port N", "first port of the leaders; 0: from 20000 to 29000, by the Job", 0, 0),
    ):
        flag(parser, typed, about, type=_number(least, limits.REPLICAS), default=default)
    for name, (about, default_s) in _PATIENCE.items():
        flag(parser, f"{name} SECONDS", about, type=argtypes.seconds, default=default_s)


def _number(least: int, most: int) -> Callable[[str], int]:
    def typed(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f'"{text}" is not a number from {least} to {most}')
        return int(text)

    return typed


def _job(text: str) -> str:
    if len(parts := text.split("/")) != 3 or not all(parts):
        raise argparse.ArgumentTypeError(f'"{text}" is not NAMESPACE/NAME/UID')
    return text


def store(text: str) -> str:
    if text not in ("api", "none") and not (text.startswith("file:") and len(text) > len("file:")):
        raise argparse.ArgumentTypeError(f'"{text}" is none of api, file:PATH and none')
    return text

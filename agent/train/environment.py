"""Environment variables set by the plugin `elastic`, lockstep-launch or torchrun."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from .client import CoordinatorClient


class BadVariable(ValueError):
    """An environment variable is missing or wrong."""


@dataclass(frozen=True)
class PodPlace:
    """The member that this process belongs to, and its place."""

    member: int
    incarnation: int  # grows with each process that speaks for the member
    pod: str
    uid: str
    address: str  # by which the other members reach it
    gpus: int
    island: str
    node: str

    def identity(self) -> dict[str, int]:
        return {"member": self.member, "incarnation": self.incarnation}

    def join_request(self) -> dict[str, int | str]:
        return dict(vars(self))


@dataclass(frozen=True)
class LaunchedRank:
    """The place of a process that lockstep-launch or torchrun started."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    generation: int


def coordinator(environ: Mapping[str, str] = os.environ) -> CoordinatorClient | None:
    """Returns a client of the coordinator that the environment names; None if it names none."""
    url = environ.get("LOCKSTEP_COORDINATOR", "")
    if not url:
        return None
    return CoordinatorClient(
        url,
        token_file=environ.get("LOCKSTEP_TOKEN_FILE", ""),
        ca_file=environ.get("LOCKSTEP_CA_FILE", ""),
    )


def pod_place(environ: Mapping[str, str] = os.environ) -> PodPlace:
    host = socket.gethostname()
    return PodPlace(
        member=_number(environ, "LOCKSTEP_MEMBER"),
        incarnation=_number(environ, "LOCKSTEP_INCARNATION", time.time_ns() // 1_000_000),
        pod=environ.get("LOCKSTEP_POD", host),
        uid=environ.get("LOCKSTEP_POD_UID", ""),
        address=environ.get("LOCKSTEP_ADDRESS", host),
        gpus=len([each for each in environ.get("LOCKSTEP_GPUS", "").split(",") if each]),  # indices
        island=environ.get("LOCKSTEP_ISLAND", ""),
        node=environ.get("LOCKSTEP_NODE", ""),
    )


def launched_rank(environ: Mapping[str, str] = os.environ) -> LaunchedRank | None:
    """Returns the rank that a launcher gave to this process; None without a launcher."""
    if "RANK" not in environ or "WORLD_SIZE" not in environ or "LOCAL_RANK" not in environ:
        return None
    return LaunchedRank(
        rank=_number(environ, "RANK"),
        size=_number(environ, "WORLD_SIZE"),
        local_rank=_number(environ, "LOCAL_RANK"),
        local_size=_number(environ, "LOCAL_WORLD_SIZE", 1),
        generation=_number(environ, "LOCKSTEP_GENERATION", 1),
    )


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdecimal():
        raise BadVariable(f'{name}="{text}": must be a whole number; the plugin elastic sets it')
    return int(text)


def seconds(name: str, default: float, environ: Mapping[str, str] = os.environ) -> float:
    """Raises BadVariable."""
    text = environ.get(name, "")
    try:
        found = float(text) if text else default
    except ValueError:
        found = -1.0
    if not 0 <= found < math.inf:
        raise BadVariable(f'{name}="{text}": must be a number of seconds; 0 turns it off')
    return found

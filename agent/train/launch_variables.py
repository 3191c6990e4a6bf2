"""The environment of a process that lockstep-launch starts, for PyTorch and by `--for` others."""

from __future__ import annotations

import json
from collections.abc import Callable

from .environment import PodPlace
from .generation import Generation


def variables(
    found: Generation, place: PodPlace, processes: int, local_rank: int, framework: str = ""
) -> dict[str, str]:
    """Returns the variables of one process. All members have the same number of processes."""
    mine = found.find(place.member, place.incarnation)
    if mine is None:
        raise ValueError(f"member {place.member} is not in generation {found.number}")
    rank = mine.rank * processes + local_rank
    general = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": found.size * processes,
        "LOCAL_WORLD_SIZE": processes,
        "GROUP_RANK": mine.rank,
        "GROUP_WORLD_SIZE": found.size,
        "MASTER_ADDR": found.leader_address,
        "MASTER_PORT": found.leader_port,
        "LOCKSTEP_GENERATION": found.number,
        "LOCKSTEP_MEMBER": place.member,
        "LOCKSTEP_INCARNATION": place.incarnation,
    }
    made = {name: str(value) for name, value in general.items()}
    return {**made, **FRAMEWORKS[framework](found, mine.rank, processes, local_rank)}


def _plain(found: Generation, member_rank: int, processes: int, local_rank: int) -> dict[str, str]:
    return {}


def _tensorflow(
    found: Generation, member_rank: int, processes: int, local_rank: int
) -> dict[str, str]:
    index = member_rank * processes + local_rank
    cluster = {"worker": endpoints(found, processes)}
    return {
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    }


def _jax(found: Generation, member_rank: int, processes: int, local_rank: int) -> dict[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": f"{found.leader_address}:{found.leader_port}",
        "JAX_NUM_PROCESSES": str(found.size * processes),
        "JAX_PROCESS_ID": str(member_rank * processes + local_rank),
    }


def _paddle(found: Generation, member_rank: int, processes: int, local_rank: int) -> dict[str, str]:
    every = endpoints(found, processes)
    index = member_rank * processes + local_rank
    return {
        "PADDLE_TRAINER_ID": str(index),
        "PADDLE_TRAINERS_NUM": str(len(every)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(every),
        "PADDLE_CURRENT_ENDPOINT": every[index],
    }


def endpoints(found: Generation, processes: int) -> list[str]:
    """host:port of each process by rank. Members of one node use different ports."""
    return [
        f"{each.address}:{found.leader_port + each.local * processes + local_rank}"
        for each in found.members
        for local_rank in range(processes)
    ]


FRAMEWORKS: dict[str, Callable[[Generation, int, int, int], dict[str, str]]] = {
    "": _plain,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "paddle": _paddle,
}

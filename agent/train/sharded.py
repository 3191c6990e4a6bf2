"""Checkpoints of state whose parts lie on several ranks (FSDP2, tensor parallelism), by torch.distributed.checkpoint:
all ranks write at the same time, and any number of ranks loads.

Design: docs/design/training.md"""

from __future__ import annotations

import io
import logging
import os
import pickle
from typing import Any

import torch
import torch.distributed as dist

from . import undo
from .checkpoints import Saved
from .job import Job
from .order import Order
from .peer_memory import CopyName, PeerMemory, PeerPlace, StateCopy, peer_distance
from .replicas import named, random_state, restore_random_state

_log = logging.getLogger("lockstep_train")
_memory: list[PeerMemory] = []  # of this process
_places: dict[int, list[PeerPlace]] = {}  # by the generation of the present turn: of its ranks
_groups: dict[Any, Any] = {}  # default process group: one beside it for asynchronous saves


def save(job: Job, step: int, *parts: Any, wait: bool = False) -> None:
    """Save a checkpoint of models, optimizers, other objects with state_dict(), dicts of counters, and an Order; call
    it on all ranks with the same step. Training continues while it is written, unless `wait`, or the turn or the order
    is at its end."""
    import torch.distributed.checkpoint as dcp

    orders = [each for each in parts if isinstance(each, Order)]
    ends = job.world is not None and job.world.ended
    ends = ends or any(map(_is_over, orders))
    state = _state(parts)
    job.checkpoints.wait()  # one at a time, since each takes memory and all ranks

    def write(path: str) -> Any:
        if wait or ends or not dist.is_initialized():
            dcp.save(state, checkpoint_id=path, no_dist=not dist.is_initialized())
            return None
        answer = dcp.async_save(state, checkpoint_id=path, process_group=_group())
        return getattr(answer, "upload_completion", answer)  # newer versions return two futures

    data = orders[0].state() if orders else None
    job.save(step, write, data=data, together=True)


def keep(job: Job, step: int, *parts: Any) -> None:
    """Copy this rank's part of the state, and send the copy to the memory of a member on another node and in another
    rack, as far as there is one; call it on all ranks with the same step, after load() in the same turn. Training
    continues while the copy is sent. Where there are several replicas nothing is sent, since the others have the same
    part. When a member is lost, load() takes the newest step of which a copy of each part is left. Copies live as long
    as the processes: under a launcher, and without a coordinator, it does nothing."""
    world = job.world
    if job.membership is None or world is None or world.restarts or world.size == 1:
        return
    from . import kept_state

    places = _places.get(world.generation)
    if places is None:
        raise RuntimeError("keep() is called after load() in the same turn")
    orders = [each.state() for each in parts if isinstance(each, Order)]
    state, size = _state(parts), world.size // world.replicas
    rank, is_only = world.rank % size, world.replicas == 1
    if not is_only:
        del state["random"]  # replicas differ in it
    plan, pieces = kept_state.divide(state, is_first=rank == 0)
    undo.check_whole()

    def make() -> StateCopy:
        return StateCopy(pickle.dumps((plan, orders)), _packed(pieces))

    peer = places[(rank + peer_distance(places)) % size] if is_only else None
    _memory[0].send(CopyName(world.generation, step, rank, size), make, peer)


def load(job: Job, *parts: Any) -> Saved | None:
    """Load the newest whole state, at any number of ranks: of the checkpoints that save() wrote, and what keep() left
    in the members' memory; None: there is none. Call it on all ranks, after init_process_group and after the model is
    divided. At the number of ranks that saved, the random numbers go on as well."""
    import torch.distributed.checkpoint as dcp

    if dist.is_initialized() and job.membership is not None and job.world is not None:
        found = _load_kept(job, parts)
        if found is not None:
            return found
    saved = job.latest(together=True)
    if saved is None:
        if any(each.step for each in parts if isinstance(each, Order)):
            raise RuntimeError(
                "there is no whole checkpoint to go back to, though steps were taken: start the processes again"
            )
        return None
    _read(parts, dcp.FileSystemReader(saved.path), saved.data)
    return saved


def _read(parts: tuple[Any, ...], reader: Any, position: Any) -> None:
    import torch.distributed.checkpoint as dcp

    is_alone = not dist.is_initialized()
    rank, size = (0, 1) if is_alone else (dist.get_rank(), dist.get_world_size())
    known = reader.read_metadata().state_dict_metadata
    state = _state(parts)
    if f"random.{size - 1}" not in known or f"random.{size}" in known:
        del state["random"]
    dcp.load(state, storage_reader=reader, no_dist=is_alone)
    _set_state(parts, state)
    if "random" in state:
        restore_random_state(_unpacked(state["random"][str(rank)]))
    for each in parts:
        if isinstance(each, Order):
            each.load(position)


def _load_kept(job: Job, parts: tuple[Any, ...]) -> Saved | None:
    """Loads from the members' memory; None: the newest whole state is not there. Says where each rank's copies are."""
    from torch.distributed.checkpoint import CheckpointException

    from .kept_state import KeptReader

    assert job.membership is not None
    assert job.world is not None
    if not _memory:
        _memory.append(PeerMemory(job.membership.client.token().encode()))
    memory, place = _memory[0], job.membership.place
    memory.finish()
    rack = os.environ.get("LOCKSTEP_RACK", "")
    mine = PeerPlace(place.node, rack, place.address, memory.port)
    newest = job.checkpoints.newest_step() if job.world.rank == 0 else -1
    told = _gathered((mine, memory.digests(), newest))
    _places.clear()
    _places[job.world.generation] = [where for where, _, _ in told]
    holders: dict[CopyName, list[tuple[PeerPlace, str]]] = {}
    for where, digests, _ in told:
        for name, digest in digests.items():
            holders.setdefault(name, []).append((where, digest))
    whole = [
        (name.generation, name.step, name.size)
        for name in holders
        if all(name._replace(rank=rank) in holders for rank in range(name.size))
    ]
    generation, step, size = max(whole, default=(0, -1, 0))
    if step < told[0][2] or step < 0:
        return None
    names = [CopyName(generation, step, rank, size) for rank in range(size)]

    def fetch(rank: int) -> StateCopy:
        there = holders[names[rank]]
        held = memory.find(names[rank])
        if held is not None and held.digest() == there[0][1]:
            return held
        return memory.fetch(names[rank], there[0][1], [where for where, _ in there])

    try:
        reader = KeptReader(_plans(names, memory), fetch, job.world.rank % size)
        _read(parts, reader, reader.positions[0] if reader.positions else None)
    except CheckpointException as error:
        _log.warning("the copies of step %d in memory are not whole: %s", step, error)
        return None
    _log.info("the state after step %d comes from the members' memory", step)
    position = reader.positions[0] if reader.positions else {}
    return Saved(f"memory-{step}-{generation}", step, (), position)


def _plans(names: list[CopyName], memory: PeerMemory) -> list[bytes]:
    """Returns the plan of each copy, from a rank that holds it."""
    held = {name.rank: copy.plan for name in names if (copy := memory.find(name)) is not None}
    found: dict[int, bytes] = {}
    for each in _gathered(held):
        found |= each
    return [found[name.rank] for name in names]


def _gathered(value: Any) -> list[Any]:
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, value)
    return every


def _group() -> Any:
    """A group for the saves alone: its collectives run beside those of the training."""
    default = dist.group.WORLD
    if default not in _groups:
        _groups.clear()
        _groups[default] = dist.new_group(backend="gloo")
    return _groups[default]


def _is_over(order: Order) -> bool:
    return isinstance(order.batch, int) and order.step >= order.all_steps


def _trained(parts: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """The models as one, and the optimizers."""
    models = [each for each in parts if isinstance(each, torch.nn.Module)]
    whole = models[0] if len(models) == 1 else torch.nn.ModuleList(models)
    return whole, [each for each in parts if isinstance(each, torch.optim.Optimizer)]


def _others(parts: tuple[Any, ...]) -> dict[str, Any]:
    kinds = (torch.nn.Module, torch.optim.Optimizer, Order)
    return named([each for each in parts if not isinstance(each, kinds)])


def _state(parts: tuple[Any, ...]) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optimizer = get_state_dict(*_trained(parts))
    rank = dist.get_rank() if dist.is_initialized() else 0
    others = {
        name: each if isinstance(each, dict) else each.state_dict()
        for name, each in _others(parts).items()
    }
    random = {str(rank): _packed(random_state())}
    return {"model": model, "optimizer": optimizer, "others": _packed(others), "random": random}


def _set_state(parts: tuple[Any, ...], state: dict[str, Any]) -> None:
    from torch.distributed.checkpoint.state_dict import set_state_dict

    model, optimizers = _trained(parts)
    found = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
    set_state_dict(model, optimizers, **found)
    others = _unpacked(state["others"])
    for name, each in _others(parts).items():
        if name in others and isinstance(each, dict):
            each.clear()
            each.update(others[name])
        elif name in others:
            each.load_state_dict(others[name])


def _packed(state: Any) -> bytes:
    """Packs the state as one value: its structure may differ between what was saved and what is loaded."""
    made = io.BytesIO()
    torch.save(state, made)
    return made.getvalue()


def _unpacked(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=False)

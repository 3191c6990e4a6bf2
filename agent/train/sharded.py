"""Checkpoints of state whose parts lie on several ranks (FSDP2, tensor parallelism), by torch.distributed.checkpoint:
all ranks write at the same time, and any number of ranks loads.

Design: docs/design/training.md"""

from __future__ import annotations

import io
from typing import Any

import torch
import torch.distributed as dist

from .checkpoints import Saved
from .job import Job
from .order import Order
from .replicas import named, random_state, restore_random_state

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
        return _Written(dcp.async_save(state, checkpoint_id=path, process_group=_group()))

    data = orders[0].state() if orders else None
    job.save(step, write, data=data, together=True)


def load(job: Job, *parts: Any) -> Saved | None:
    """Load the newest whole checkpoint that save() wrote, at any number of ranks; None: there is none. Call it on all
    ranks, after init_process_group and after the model is divided. At the number of ranks that saved, the random
    numbers go on as well."""
    import torch.distributed.checkpoint as dcp

    saved = job.latest(together=True)
    if saved is None:
        if any(each.step for each in parts if isinstance(each, Order)):
            raise RuntimeError(
                "there is no whole checkpoint to go back to, though steps were taken: start the processes again"
            )
        return None
    is_alone = not dist.is_initialized()
    rank, size = (0, 1) if is_alone else (dist.get_rank(), dist.get_world_size())
    known = dcp.FileSystemReader(saved.path).read_metadata().state_dict_metadata
    state = _state(parts)
    if f"random.{size - 1}" not in known or f"random.{size}" in known:
        del state["random"]
    dcp.load(state, checkpoint_id=saved.path, no_dist=is_alone)
    _set_state(parts, state)
    if "random" in state:
        restore_random_state(_unpacked(state["random"][str(rank)]))
    for each in parts:
        if isinstance(each, Order):
            each.load(saved.data)
    return saved


class _Written:
    """A future of PyTorch or its newer pair of futures; result() waits until all is written."""

    def __init__(self, answer: Any) -> None:
        self._future = getattr(answer, "upload_completion", answer)

    def result(self) -> None:
        self._future.result()


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

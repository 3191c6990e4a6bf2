"""Support of PyTorch: `lockstep_train.torch.share` sends the state of present members to newcomers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.data

from .order import BatchSampler, Order


def share(model: Any, optimizer: Any = None, order: Order | None = None) -> int:
    """Give all ranks the weights, the optimizer's state and the position of the rank that took the most
    steps (of several the lowest), after init_process_group and before DistributedDataParallel wraps the
    model. Returns that rank.

    Model and optimizer are anything with state_dict() and load_state_dict(). Where all ranks took the same
    steps, which is so after a shrink, nothing is sent but their number; at step 0 everything is, so that
    all begin with the same weights."""
    size = dist.get_world_size()
    if size == 1:
        return 0
    device = _device()
    steps = torch.tensor([order.step if order is not None else 0], device=device)
    every = [torch.zeros_like(steps) for _ in range(size)]
    dist.all_gather(every, steps)
    counts = [int(each.item()) for each in every]
    source = counts.index(max(counts))
    if order is not None and min(counts) == max(counts) > 0:
        return source
    state = {"model": model.state_dict()}
    if optimizer is not None:
        state["optimizer"] = optimizer.state_dict()
    tensors: list[Any] = []
    outline = [_outline(state, tensors), order.state() if order is not None else None]
    dist.broadcast_object_list(outline, src=source, device=torch.device(device))
    if dist.get_rank() != source:
        tensors = [torch.empty(each.shape, dtype=each.dtype) for each in _marks(outline[0])]
    received = [_broadcast(each, source, device) for each in tensors]
    if dist.get_rank() != source:
        found = _filled(outline[0], iter(received))
        model.load_state_dict(found["model"])
        if optimizer is not None:
            optimizer.load_state_dict(found["optimizer"])
        if order is not None:
            order.load(outline[1])
    return source


class RecordStream(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """A stream of whole batches for sources that are read from their start, in the order's order, with any number of
    the loader's processes. `read(ids)` makes a batch of the records that Order.over() names, such as (shard, offset).

    As a loader: `lambda sampler: DataLoader(RecordStream(sampler, read), batch_size=None, num_workers=4)`"""

    def __init__(self, sampler: BatchSampler, read: Callable[[list[Any]], Any]) -> None:
        self._sampler, self._read = sampler, read

    def __iter__(self) -> Iterator[Any]:
        """A DataLoader takes a batch of each of its processes in turn, so each makes every n-th."""
        mine = torch.utils.data.get_worker_info()
        first, every = (0, 1) if mine is None else (mine.id, mine.num_workers)
        for ids in islice(self._sampler, first, None, every):
            yield self._read(ids)


class TensorMark:
    """Stands for a tensor in the outline of a state."""

    def __init__(self, tensor: Any) -> None:
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype


def _outline(state: Any, tensors: list[Any]) -> Any:
    """The state with a mark for each tensor; the tensors are appended in the marks' order."""
    if torch.is_tensor(state):
        tensors.append(state)
        return TensorMark(state)
    if isinstance(state, dict):
        return {key: _outline(value, tensors) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_outline(value, tensors) for value in state)
    return state


def _marks(outline: Any) -> Iterator[TensorMark]:
    if isinstance(outline, TensorMark):
        yield outline
    elif isinstance(outline, dict):
        for value in outline.values():
            yield from _marks(value)
    elif isinstance(outline, (list, tuple)):
        for value in outline:
            yield from _marks(value)


def _filled(outline: Any, tensors: Iterator[Any]) -> Any:
    if isinstance(outline, TensorMark):
        return next(tensors)
    if isinstance(outline, dict):
        return {key: _filled(value, tensors) for key, value in outline.items()}
    if isinstance(outline, (list, tuple)):
        return type(outline)(_filled(value, tensors) for value in outline)
    return outline


def _broadcast(tensor: Any, source: int, device: str) -> Any:
    there = tensor.detach().to(device).contiguous()
    dist.broadcast(there, src=source)
    return there


def _device() -> str:
    """Returns the device that tensors of collectives must be on."""
    if "nccl" in str(dist.get_backend()):
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu"

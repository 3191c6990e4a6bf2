"""Support of PyTorch: `lockstep_train.torch.share` sends the state of present members to newcomers."""

from __future__ import annotations

import math
import random
import sys
import weakref
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.data

from . import undo
from .agreement import watch_replicas
from .order import BatchSampler, Order
from .replicas import (
    Replicas,
    ReplicasDiffer,
    align_divided,
    is_divided,
    named,
    random_state,
    restore_random_state,
)
from .sharded import keep, load, save
from .standstill import computed
from .world import World

__all__ = ["RecordStream", "ReplicasDiffer", "keep", "load", "mesh", "save", "seed", "share"]


_hooked: Any = weakref.WeakSet()  # models
_turns = [0]  # in which this process has shared its state


def share(
    model: Any,
    optimizer: Any = None,
    order: Order | None = None,
    *parts: Any,
    rng: bool = True,
    every: int = 0,
    copy: bool = True,
) -> int:
    """Give newcomers the state of the rank that took the most steps (of several one that has trained before), after
    init_process_group and before DistributedDataParallel wraps the model. Returns that rank.

    Each argument is an object with state_dict() and load_state_dict(), such as a model, an optimizer, a scheduler, a
    scaler or an average, an Order, or a dict of counters, which is changed in place; any number of them, in any order.

    rng    newcomers get the states of random, numpy, PyTorch and its device, too
    every  steps between two comparisons of the replicas; 0: they are compared here alone. Settings of optimizers, such
           as learning rates, are compared after each step
    copy   in the body of `with world:` the state is copied after each step, so that a lost member costs at most one.
           False saves the memory; the processes start again then

    Where all ranks took the same steps, which is so after a shrink, nothing is sent but digests; at step 0 everything
    is, so that all begin with the same weights. Raises ReplicasDiffer if the ranks differ afterwards."""
    given = [each for each in (model, optimizer, order, *parts) if each is not None]
    size = dist.get_world_size()
    ranks: list[tuple[int, ...]] = (
        [(0, 0)] if size == 1 else _gathered(max(map(_steps, given)), _turns[0])
    )
    source, mine = ranks.index(max(ranks)), ranks[dist.get_rank()]
    if size > 1:
        steps = [each for each, _ in ranks]
        if not max(steps) or min(steps) < max(steps) or len({turns > 0 for _, turns in ranks}) > 1:
            is_new = mine[1] == 0 < ranks[source][1] or mine[0] < ranks[source][0]
            _send(given, source, is_new=is_new and rng, begins=max(ranks) == (0, 0))
    watched = Replicas(named(given), every, source)
    watched.compare("after sharing")
    watch_replicas(watched)
    _turns[0] += 1
    if _device() == "cpu":  # a GPU computes a gradient later than its hook runs
        _hook_gradients(model)
    if undo.is_guarded():
        undo.register(KeptState(given) if copy else None)
    return source


def _hook_gradients(model: Any) -> None:
    if not isinstance(model, torch.nn.Module) or model in _hooked:
        return
    _hooked.add(model)
    for each in model.parameters():
        if each.requires_grad:
            each.register_hook(computed)


def mesh(world: World, **inside: int) -> Any:
    """Returns the mesh of this turn: first its dimension `replica`, then those inside of a replica with their sizes,
    such as `mesh(world, shard=4, tensor=2)`. Successive ranks differ in the last one. For fully_shard the first two
    are the mesh of replicas of divided state. Raises ValueError where the ranks are no whole replicas."""
    from torch.distributed.device_mesh import init_device_mesh

    size = math.prod(inside.values())
    if world.size % size or world.replicas not in (1, world.size // size):
        raise ValueError(
            f"mesh(world, {inside}): replicas of {size} ranks, but {world.size} ranks are {world.replicas} replicas "
            "(--replica of the coordinator)"
        )
    shape, names = (world.size // size, *inside.values()), ("replica", *inside)
    return init_device_mesh(_device().partition(":")[0], shape, mesh_dim_names=names)


def seed(number: int, step: int, rank: int) -> None:
    """Seeds random, numpy and PyTorch by three numbers. Called before each step, the random numbers of a step, as those
    of dropout, depend on its number and the rank alone, and not on what ran before in the process."""
    mixed = blake2b(f"{number} {step} {rank}".encode(), digest_size=8).digest()
    random.seed(mixed)
    torch.manual_seed(int.from_bytes(mixed, "big") >> 1)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(int.from_bytes(mixed[:4], "big"))


def _steps(part: Any) -> int:
    return part.step if isinstance(part, Order) else 0


def _gathered(*values: int) -> list[tuple[int, ...]]:
    """The values of each rank."""
    mine = torch.tensor(values, device=_device())
    every = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return [tuple(map(int, each)) for each in every]


def _send(parts: list[Any], source: int, *, is_new: bool, begins: bool) -> None:
    """Broadcasts the states of the source's parts. is_new: this rank takes the random numbers, too. begins: no rank has
    taken a step."""
    device, mine = _device(), dist.get_rank() == source
    own: list[Any] = []
    outline = [_outline([_state(each) for each in parts], own), random_state() if mine else None]
    divided = [each for each in own if is_divided(each)]
    if divided and not begins:
        raise ValueError(
            "share() sends whole state, and each rank has a part of this one (DTensor): load it on all ranks at the "
            "start of the turn, by lockstep_train.torch.load()"
        )
    align_divided(divided)
    dist.broadcast_object_list(outline, src=source, device=torch.device(device))
    marks = own if mine else []
    if not mine:
        _replaced(outline[0], TensorMark, marks.append)
    received = []
    for number, each in enumerate(marks):
        if getattr(each, "divided", is_divided(each)):
            received.append(own[number])
        else:
            there = each if mine else torch.empty(each.shape, dtype=each.dtype)
            received.append(_broadcast(there, source, device))
    if mine:
        return
    for part, state in zip(parts, _filled(outline[0], iter(received))):
        _load(part, state)
    if is_new:
        restore_random_state(outline[1])


def _state(part: Any) -> Any:
    if isinstance(part, dict):
        return part
    return part.state() if isinstance(part, Order) else part.state_dict()


def _load(part: Any, state: Any) -> None:
    if isinstance(part, Order):
        part.load(state)
    elif isinstance(part, dict):
        part.clear()
        part.update(state)
    else:
        part.load_state_dict(state)


class KeptState:
    """A copy of the parts' state after the last whole step, on the same devices, with the random numbers."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts
        self._outline: list[Any] = []
        self._random: dict[str, Any] = {}
        self._copies: list[Any] = []

    def keep(self) -> None:
        if _device() != "cpu":
            torch.cuda.synchronize()  # what ran ahead of a collective that was ended does not count
            undo.check_whole()
        tensors: list[Any] = []
        self._outline = [_outline(_state(each), tensors) for each in self._parts]
        self._random = random_state()
        with torch.no_grad():
            if list(map(_form, tensors)) == list(map(_form, self._copies)):
                for copy, tensor in zip(self._copies, tensors):
                    copy.copy_(tensor)
            else:
                self._copies = [each.detach().clone() for each in tensors]

    def restore(self) -> None:
        """Loads the copies, which belong to the parts afterwards."""
        for part, state in zip(self._parts, _filled(self._outline, iter(self._copies))):
            _load(part, state)
        restore_random_state(self._random)


def _form(tensor: Any) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device


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
        self.divided = is_divided(tensor)


def _outline(state: Any, tensors: list[Any]) -> Any:
    """The state with a mark for each tensor; the tensors are appended in the marks' order."""

    def mark(tensor: Any) -> TensorMark:
        tensors.append(tensor)
        return TensorMark(tensor)

    return _replaced(state, torch.Tensor, mark)


def _filled(outline: Any, tensors: Iterator[Any]) -> Any:
    return _replaced(outline, TensorMark, lambda _: next(tensors))


def _replaced(state: Any, kind: type, replace: Callable[[Any], Any]) -> Any:
    """Returns the state with all values of a kind replaced, in a fixed order."""
    if isinstance(state, kind):
        return replace(state)
    if isinstance(state, dict):
        return {key: _replaced(value, kind, replace) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        make = getattr(state, "_make", type(state))  # of a namedtuple, which takes no iterable
        return make(_replaced(value, kind, replace) for value in state)
    return state


def _broadcast(tensor: Any, source: int, device: str) -> Any:
    there = tensor.detach().to(device).contiguous()
    dist.broadcast(there, src=source)
    return there


def _device() -> str:
    """Returns the device that tensors of collectives must be on."""
    if "nccl" in str(dist.get_backend()):
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu"

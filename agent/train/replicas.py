"""Comparison of replicas: ranks that should have equal weights, optimizers and counters.

A digest needs one pass over the parameters, on their device. Buffers are left out, because each rank updates those of
normalisation layers by its own records, and so are tensors of which each rank has a part."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist

_BLOCK = 4096  # words that are added up before they are weighed by their place
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class ReplicasDiffer(RuntimeError):
    """Ranks that should be equal are not."""


class Replicas:
    """The objects that share() was called with, by name. every: steps between two comparisons of all of them; 0: never.
    The settings of optimizers, such as learning rates, are compared at each step."""

    def __init__(self, parts: Mapping[str, Any], every: int, source: int) -> None:
        self._parts, self._every, self._source = parts, every, source

    def digest(self, turn_step: int) -> int:
        """Returns a number that is the same on equal ranks. turn_step: steps of this turn."""
        values: Any = [_settings(each) for each in self._parts.values()]
        if self._every and turn_step % self._every == 0:
            values = [values, list(self.digests().values())]
        return _number(_canonical(values))

    def digests(self) -> dict[str, int]:
        return {name: digest(each) for name, each in self._parts.items()}

    def compare(self, when: str) -> None:
        """Compares all parts. Call it on all ranks. Raises ReplicasDiffer."""
        mine = (self.digests(), {name: _settings(each) for name, each in self._parts.items()})
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, mine)
        of_source, settings = every[self._source]
        found = []
        for name in of_source:
            ranks = [
                rank
                for rank, (digests, others) in enumerate(every)
                if (digests.get(name), others.get(name)) != (of_source[name], settings[name])
            ]
            if ranks:
                found.append(
                    f"{name} on {_ranks(ranks)}" + _why(settings[name], every, name, ranks)
                )
        if found:
            raise ReplicasDiffer(
                f"replicas differ {when}: {'; '.join(found)} (rank {self._source} has other values). Give "
                "lockstep_train.torch.share() every object that changes during training, such as schedulers"
            )


def digest(part: Any) -> int:
    """Returns a number of 62 bits for the state of an object, the same for equal states on all ranks."""
    if isinstance(part, torch.nn.Module):
        state: Any = dict(part.named_parameters())
    elif isinstance(part, Mapping):
        state = part
    else:
        state = part.state_dict() if hasattr(part, "state_dict") else part.state()
    return _number(_canonical(state))


def is_divided(tensor: Any) -> bool:
    """Returns whether each rank has a part of the tensor (DTensor)."""
    return hasattr(tensor, "placements")


def align_divided(tensors: list[Any]) -> None:
    """Gives ranks that hold the same part of a tensor equal values, those of the first of them."""
    for each in tensors:
        local = each.detach().to_local()
        for dimension, placement in enumerate(each.placements):
            if placement.is_replicate():
                group = each.device_mesh.get_group(dimension)
                dist.broadcast(local, src=dist.get_global_rank(group, 0), group=group)


def named(parts: Iterable[Any]) -> dict[str, Any]:
    """The parts by the names of their classes, with numbers where there are several of a class."""
    found: dict[str, Any] = {}
    for each in parts:
        name = "counters" if isinstance(each, dict) else type(each).__name__
        number = sum(1 for other in found if other.partition(" ")[0] == name)
        found[f"{name} {number + 1}" if number else name] = each
    return found


def random_state() -> dict[str, Any]:
    found: dict[str, Any] = {"random": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        found["numpy"] = sys.modules["numpy"].random.get_state()
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def restore_random_state(found: dict[str, Any]) -> None:
    random.setstate(found["random"])
    torch.set_rng_state(found["torch"])
    if "numpy" in found:
        import_module("numpy").random.set_state(found["numpy"])
    if "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found["cuda"])


def _number(parts: Iterator[str]) -> int:
    found = blake2b(digest_size=8)
    for each in parts:
        found.update(each.encode() + b"\0")
    return int.from_bytes(found.digest(), "big") >> 2


def _canonical(value: Any) -> Iterator[str]:
    """Yields the value's content as texts. Objects of other kinds count by their class alone."""
    if torch.is_tensor(value):
        yield f"{tuple(value.shape)} {value.dtype}" + (
            "" if is_divided(value) else f" {_sum(value)}"
        )
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            yield repr(key)
            yield from _canonical(value[key])
    elif isinstance(value, (list, tuple)):
        yield f"[{len(value)}"
        for each in value:
            yield from _canonical(each)
    else:
        yield repr(value) if isinstance(value, _PLAIN) else type(value).__qualname__


def _sum(tensor: Any) -> int:
    """Sums the tensor's bytes as words, weighed by their places, modulo 2^64."""
    words = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    full = len(words) // 8 * 8
    longs = words[:full].view(torch.int64)
    blocks = len(longs) // _BLOCK * _BLOCK
    sums = longs[:blocks].view(-1, _BLOCK).sum(1)
    pieces = torch.cat([sums, longs[blocks:], words[full:].long()])
    places = torch.arange(1, len(pieces) + 1, dtype=torch.int64, device=pieces.device)
    return int((pieces * (2 * places + 1)).sum().item())


def _settings(part: Any) -> list[dict[str, Any]]:
    """The settings of an optimizer's groups of parameters, such as the learning rate; of other objects none."""
    groups = getattr(part, "param_groups", None)
    return [
        {key: value for key, value in group.items() if isinstance(value, _PLAIN)}
        for group in (groups if isinstance(groups, list) else ())
    ]


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (
        f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    )
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _why(of_source: Any, every: list[Any], name: str, ranks: list[int]) -> str:
    """Returns the first setting that differs, in brackets."""
    others = every[ranks[0]][1].get(name)
    for mine, other in zip(of_source, others or ()):
        for key, value in mine.items():
            if other.get(key) != value:
                return f" ({key} {other.get(key)} instead of {value})"
    return ""

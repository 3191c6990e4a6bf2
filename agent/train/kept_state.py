"""A rank's part of a divided state as bytes, and a reader for torch.distributed.checkpoint that takes such parts of any
number of ranks. No rank speaks with another one to make its part.

Design: docs/design/training.md"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultSavePlanner, StorageReader
from torch.distributed.checkpoint.planner import LoadItemType

from .peer_memory import StateCopy


def divide(state: dict[str, Any], *, is_first: bool) -> tuple[Any, dict[Any, Any]]:
    """Returns the plan of this rank's pieces, and a copy of each in main memory."""
    planner = DefaultSavePlanner()
    planner.set_up_planner(state, is_coordinator=is_first)
    plan = planner.create_local_plan()
    pieces: dict[Any, Any] = {}
    for item in plan.items:
        value = planner.resolve_data(item)
        pieces[item.index] = (
            value.getvalue()
            if isinstance(value, io.BytesIO)
            else value.detach().to("cpu", copy=True)
        )
    return plan, pieces


class KeptReader(StorageReader):  # type: ignore[misc]
    """positions: those of the orders that were copied"""

    def __init__(self, plans: list[bytes], fetch: Callable[[int], StateCopy], near: int) -> None:
        """plans: of each rank that made a copy; fetch: returns a rank's copy; near: the rank whose copy is used for all
        that it has"""
        found = [pickle.loads(each) for each in plans]
        self.positions = found[0][1]
        every, self._metadata = DefaultSavePlanner().create_global_plan([plan for plan, _ in found])
        self._ranks = {item.index: rank for rank, plan in enumerate(every) for item in plan.items}
        self._ranks |= {item.index: near for item in found[near][0].items}
        self._fetch, self._pieces = fetch, dict[int, Any]()

    def read_metadata(self, *given: Any, **named: Any) -> Any:
        return self._metadata

    def read_data(self, plan: Any, planner: Any) -> Any:
        for item in plan.items:
            value = self._piece(item.storage_index)
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(value))
                continue
            for dimension, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
                value = value.narrow(dimension, start, length)
            target = planner.resolve_tensor(item).detach()
            target.copy_(value)
            planner.commit_tensor(item, target)
        done = torch.futures.Future()
        done.set_result(None)
        return done

    def _piece(self, index: Any) -> Any:
        rank = self._ranks[index]
        if rank not in self._pieces:
            content = io.BytesIO(self._fetch(rank).content)
            self._pieces[rank] = torch.load(content, map_location="cpu", weights_only=False)
        return self._pieces[rank][index]

    def reset(self, checkpoint_id: Any = None) -> None:
        """Does nothing: a reader reads one state."""

    def set_up_storage_reader(self, *given: Any, **named: Any) -> None:
        """Does nothing: the plans are known."""

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: Any) -> Any:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True

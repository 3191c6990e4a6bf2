"""Lockstep's library for training processes, installed as `lockstep_train`: elastic membership, an order of
records that no size changes, tasks with leases, checkpoints that hold the position in the data.

Python 3.9 and the standard library are enough. Without a coordinator everything works as one process.
Imports inside are relative, because the package has another name in the repository."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .batches import Batch
from .checkpoints import Saved
from .job import Job, join, stopping
from .order import BatchSampler, Order
from .step_file import progress
from .task_data import data
from .task_lease import EpochStatus, OtherEpoch, SetAside, TaskResult
from .tasks import Task, Tasks, WorkerStopped
from .world import World

__all__ = [
    "Batch",
    "BatchSampler",
    "EpochStatus",
    "Job",
    "Order",
    "OtherEpoch",
    "Saved",
    "SetAside",
    "SubmittedJob",
    "Task",
    "TaskResult",
    "Tasks",
    "WorkerStopped",
    "World",
    "data",
    "join",
    "progress",
    "stopping",
    "submit",
]


def __getattr__(name: str) -> Any:
    """Imports parts on first use: those that need PyTorch, transformers or Lightning, and the submission of Jobs,
    which training does not need."""
    if name in ("torch", "huggingface", "lightning"):
        return import_module(f".{name}", __name__)
    if name in ("submit", "SubmittedJob"):
        return getattr(import_module(".job_submission", __name__), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")

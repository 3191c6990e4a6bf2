"""Support of transformers' Trainer: `lockstep_train.huggingface.TrainerElasticity`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainingArguments

from .framework_turn import Batches, FrameworkTurn, copied
from .order import Loader, Order

_BY_TOKENS = "average_tokens_across_devices"  # newer versions weigh the ranks by it


class TrainerElasticity(TrainerCallback):  # type: ignore[misc]  # there are no types where it is not installed
    """Saves and stops when the size changes, and keeps the position in the data with each checkpoint.

    The Trainer gets `elastic.arguments()` among its TrainingArguments, its get_train_dataloader() returns
    `elastic.batches(loader)`, and train() is called with `resume_from_checkpoint=elastic.latest()`."""

    def __init__(self, order: Order, checkpoints: str | os.PathLike[str] | None = None) -> None:
        self.turn = FrameworkTurn(order, checkpoints)

    def arguments(self) -> dict[str, Any]:
        """The position is the order's, so the Trainer skips nothing. Ranks are weighed by their records, not by their tokens
        as well."""
        found = {"max_steps": self.turn.order.all_steps, "ignore_data_skip": True}
        tokens = {_BY_TOKENS: False} if _BY_TOKENS in vars(TrainingArguments) else {}
        return {**found, **tokens}

    def latest(self) -> str | None:
        return self.turn.latest()

    def batches(self, loader: Loader) -> Batches:
        return self.turn.batches(loader)

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        if args.gradient_accumulation_steps != 1:
            raise ValueError("gradient_accumulation_steps: each step of the Order is one step; 1")
        if not args.ignore_data_skip or args.max_steps != self.turn.order.all_steps:
            raise ValueError("TrainingArguments lack those of elastic.arguments()")
        if getattr(args, _BY_TOKENS, False):
            raise ValueError(f"{_BY_TOKENS}: the ranks are weighed by their records; False")
        self.turn.take_signals()
        if model is not None:
            self.turn.weigh(model)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.turn.over(state.global_step):
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self.turn.save(state.global_step, copied(str(written)))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.turn.end()

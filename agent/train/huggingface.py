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
        """The position is the order's, so the Trainer skips nothing. Ranks are weighed by their records, not by their
        tokens as well."""
        found = {"max_steps": self.turn.order.all_steps, "ignore_data_skip": True}
        found["gradient_accumulation_steps"] = self.turn.accumulated()
        tokens = {_BY_TOKENS: False} if _BY_TOKENS in vars(TrainingArguments) else {}
        return {**found, **tokens}

    def latest(self) -> str | None:
        return self.turn.latest()

    def batches(self, loader: Loader) -> Batches:
        return self.turn.batches(loader)

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        if any(getattr(args, key) != value for key, value in self.arguments().items()):
            raise ValueError("TrainingArguments lack those of elastic.arguments()")
        if self.turn.order.pieces > 1 and getattr(model, "accepts_loss_kwargs", True):
            raise ValueError("with micro: set model.accepts_loss_kwargs = False before the Trainer")
        self.turn.take_signals()
        if model is not None:
            self.turn.weigh(model)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.turn.taken()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.turn.taken()
        if self.turn.over(state.global_step):
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self.turn.save(state.global_step, copied(str(written)))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.turn.end()

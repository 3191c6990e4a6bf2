"""Support of PyTorch Lightning: `lockstep_train.lightning.ElasticCallback`."""

from __future__ import annotations

import os
from typing import Any

from .framework_turn import Batches, FrameworkTurn
from .order import Loader, Order

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    from pytorch_lightning import Callback


class ElasticCallback(Callback):  # type: ignore[misc]  # there are no types where it is not installed
    """Saves every `every` steps, saves and stops when the size changes, and keeps the position in the data with
    each checkpoint.

    The Trainer gets `elastic.arguments()`, its train dataloader is `elastic.batches(loader)`, and fit() is called
    with `ckpt_path=elastic.latest()`."""

    def __init__(
        self, order: Order, every: int = 100, checkpoints: str | os.PathLike[str] | None = None
    ) -> None:
        self.turn, self._every = FrameworkTurn(order, checkpoints), every

    def arguments(self) -> dict[str, Any]:
        return {"max_steps": self.turn.order.all_steps, "use_distributed_sampler": False}

    def latest(self) -> str | None:
        return self.turn.latest()

    def batches(self, loader: Loader) -> Batches:
        return self.turn.batches(loader)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.accumulate_grad_batches != 1:
            raise ValueError("accumulate_grad_batches: each step of the Order is one step; 1")
        if trainer.max_steps != self.turn.order.all_steps:
            raise ValueError("the Trainer lacks elastic.arguments()")
        self.turn.weigh(pl_module)
        self.turn.take_signals()  # Lightning's handler would wait for the other ranks inside of a step

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        step = trainer.global_step
        if self.turn.over(step):
            trainer.should_stop = True
        if trainer.should_stop or step % self._every == 0:
            written = self.turn.job.checkpoints.folder / f"lightning-{step}.ckpt"
            trainer.save_checkpoint(written)
            self.turn.save(step, written.replace)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self.turn.end()

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
        self._batches = 0  # taken by this process

    def arguments(self) -> dict[str, Any]:
        found = {"max_steps": self.turn.order.all_steps, "use_distributed_sampler": False}
        return {**found, "accumulate_grad_batches": self.turn.accumulated()}

    def latest(self) -> str | None:
        return self.turn.latest()

    def batches(self, loader: Loader) -> Batches:
        return self.turn.batches(loader)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        count = self.turn.accumulated()
        if (trainer.max_steps, trainer.accumulate_grad_batches) != (
            self.turn.order.all_steps,
            count,
        ):
            raise ValueError("the Trainer lacks elastic.arguments()")
        self.turn.weigh(pl_module)
        self.turn.take_signals()  # Lightning's handler would wait for the other ranks inside of a step

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        """Counts the batches anew: a step may have had another number of them when the checkpoint was written."""
        if not self._batches:
            batches = trainer.fit_loop.epoch_loop.batch_progress.current
            batches.ready = trainer.global_step * self.turn.order.pieces + 1

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.turn.taken()
        step, self._batches = trainer.global_step, self._batches + 1
        if self._batches % self.turn.order.pieces:
            return
        if self.turn.over(step):
            trainer.should_stop = True
        if trainer.should_stop or step % self._every == 0:
            written = self.turn.job.checkpoints.folder / f"lightning-{step}.ckpt"
            trainer.save_checkpoint(written)
            self.turn.save(step, written.replace)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self.turn.end()

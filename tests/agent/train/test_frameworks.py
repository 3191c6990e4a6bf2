"""The Trainers of transformers and Lightning with `micro`, where they are installed: the weights are those of a run
that accumulates nothing, also when another number of processes goes on from its checkpoint."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.train import Order
from tests.agent.train import torch_training
from tests.agent.train.coordinators import free_port
from tests.agent.train.worlds import Rank
from tests.architecture.sources import ROOT

TRANSFORMERS = """
import json, sys, torch, lockstep_train as lt
from transformers import Trainer, TrainingArguments
torch.manual_seed(0)
data = [{"x": torch.full((3,), each / 40), "labels": torch.tensor([each / 20])} for each in range(40)]
class Model(torch.nn.Module):
    accepts_loss_kwargs = False
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
    def forward(self, x, labels=None):
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), labels)}
elastic = lt.huggingface.TrainerElasticity(lt.Order(40, batch=8, seed=7, epochs=4, micro=json.loads(sys.argv[1])), "ck")
class Elastic(Trainer):
    def get_train_dataloader(self):
        return elastic.batches(
            lambda sampler: torch.utils.data.DataLoader(data, batch_sampler=sampler, collate_fn=self.data_collator))
given = TrainingArguments("out", save_steps=7, learning_rate=0.05, max_grad_norm=0, report_to=[], use_cpu=True, **elastic.arguments())
trainer = Elastic(Model(), given, train_dataset=data, callbacks=[elastic])
trainer.train(resume_from_checkpoint=elastic.latest())
print(json.dumps([trainer.state.global_step, trainer.model.layer.weight.flatten().tolist()]))
"""
LIGHTNING = """
import json, sys, torch, lightning, lockstep_train as lt
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(40, 3), torch.randn(40, 1))
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
order = lt.Order(40, batch=8, seed=7, epochs=4, micro=json.loads(sys.argv[1]))
elastic = lt.lightning.ElasticCallback(order, every=7, checkpoints="ck")
trainer = lightning.Trainer(accelerator="cpu", devices=1, callbacks=[elastic], logger=False, enable_progress_bar=False,
                            enable_checkpointing=False, **elastic.arguments())
loader = elastic.batches(lambda sampler: torch.utils.data.DataLoader(data, batch_sampler=sampler))
model = Model()
trainer.fit(model, loader, ckpt_path=elastic.latest())
print(json.dumps([trainer.global_step, model.layer.weight.flatten().tolist()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "script"), [("transformers", TRANSFORMERS), ("lightning", LIGHTNING)]
)
def test_a_trainer_that_accumulates_has_the_same_weights(
    tmp_path: Path, package: str, script: str
) -> None:
    python = torch_training.python()
    if not torch_training.runs(python, f"import {package}"):
        pytest.skip(f"this needs {package}")
    (tmp_path / "lockstep_train").symlink_to(ROOT / "agent/train")
    environment = {name: value for name, value in os.environ.items() if "LOCKSTEP" not in name}
    environment |= {
        "PYTHONPATH": str(tmp_path),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    environment |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}

    def weights(micro: int | None) -> list[float]:
        made = subprocess.run(
            [python, "-c", script, json.dumps(micro)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stderr
        step, found = json.loads(made.stdout.splitlines()[-1])
        assert step == 20
        return list(found)

    wanted = weights(None)
    shutil.rmtree(tmp_path / "ck/ckpt-20-1", ignore_errors=True)
    assert {each.name for each in (tmp_path / "ck").glob("ckpt-*")} == {"ckpt-7-1", "ckpt-14-1"}
    assert weights(3) == pytest.approx(wanted, rel=1e-5), "it goes on with three batches in a step"
    shutil.rmtree(tmp_path / "ck")
    assert weights(3) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_each_rank_has_as_many_batches_in_each_step(size: int) -> None:
    """Also in the last one, which has fewer records than there are batches."""
    records: dict[int, list[int]] = {}
    for rank in range(size):
        order = Order(10, 4, seed=3, epochs=2, micro=1)
        order.pieces = 4 if size == 1 else 2
        count: dict[int, int] = {}
        for step, batch in order.steps(Rank(rank, size)):
            count[step] = count.get(step, 0) + 1
            assert len(batch.ids) == max(1, batch.records)
            assert batch.last == (count[step] == order.pieces)
            records.setdefault(step, []).extend(batch.ids[: batch.records])
        assert count == dict.fromkeys(range(1, 7), order.pieces)
    alone = {step: batch.ids for step, batch in Order(10, 4, seed=3, epochs=2).steps(Rank(0, 1))}
    assert {step: sorted(found) for step, found in records.items()} == {
        step: sorted(ids) for step, ids in alone.items()
    }

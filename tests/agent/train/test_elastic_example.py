"""The training script of daemonset/examples/elastic-pytorch.yaml, as a process of its own on a laptop."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.agent.train import torch_training
from tests.architecture.sources import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch_training.python(), reason=torch_training.NEEDS),
]


def script(epochs: int) -> str:
    """With a small data set: eight steps an epoch."""
    job = yaml.safe_load((ROOT / "daemonset/examples/elastic-pytorch.yaml").read_text())
    task = next(one for one in job["spec"]["tasks"] if one["name"] == "worker")
    text: str = task["template"]["spec"]["containers"][0]["command"][2]
    for given, small in (("100_000", "2_048"), ("epochs=10", f"epochs={epochs}")):
        assert text.count(given) == 1
        text = text.replace(given, small)
    return text.replace('"/checkpoints"', '"checkpoints"') + "\nprint(order.step)\n"


def test_the_script_trains_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "lockstep_train").symlink_to(ROOT / "agent/train")
    environment = {name: value for name, value in os.environ.items() if "LOCKSTEP" not in name}
    environment |= {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}

    def run(epochs: int) -> str:
        made = subprocess.run(
            [torch_training.python(), "-c", script(epochs)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stderr
        return made.stdout

    assert run(14) == "112\n"
    assert [each.name for each in (tmp_path / "checkpoints").iterdir()] == ["ckpt-100-1"]
    assert run(13) == "104\n"
    (tmp_path / "checkpoints/ckpt-100-1/part-0").write_bytes(b"torn")
    assert run(2) == "16\n", "the step of a torn checkpoint is not offered"

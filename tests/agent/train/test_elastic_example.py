"""The training scripts of daemonset/examples/elastic-pytorch.yaml and of the first page: processes of their own on a
laptop, and members of a Job of which one is killed."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.agent.train import torch_training
from tests.agent.train.coordinators import coordinator
from tests.agent.train.workers import wait_for, workers
from tests.architecture.sources import ROOT

pytestmark = pytest.mark.slow


def example(epochs: int) -> str:
    """With a small data set: eight steps an epoch."""
    job = yaml.safe_load((ROOT / "daemonset/examples/elastic-pytorch.yaml").read_text())
    task = next(one for one in job["spec"]["tasks"] if one["name"] == "worker")
    text: str = task["template"]["spec"]["containers"][0]["command"][2]
    for given, small in (("100_000", "2_048"), ("epochs=10", f"epochs={epochs}")):
        assert text.count(given) == 1
        text = text.replace(given, small)
    return text.replace('"/checkpoints"', '"checkpoints"') + "\nprint(order.step)\n"


DATA = """
torch.manual_seed(1)
dataset = torch.utils.data.TensorDataset(torch.randn(2_048, 8), torch.randint(0, 3, (2_048,)))
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def first_page(epochs: int) -> str:
    """With data, a model and an optimizer; without processes for the loader."""
    page = (ROOT / "docs/getting-started/elastic-training.md").read_text()
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    text, count = re.subn("(?m)^dataset, model, optimizer = .*$", DATA, found[1])
    assert count == 1
    for given, small in (("epochs=10", f"epochs={epochs}"), (", num_workers=4", "")):
        assert text.count(given) == 1
        text = text.replace(given, small)
    return text + "\nprint(order.step)\n"


@pytest.mark.parametrize("script", [example, first_page])
def test_the_script_trains_and_goes_on_from_its_checkpoint(
    tmp_path: Path, script: Callable[[int], str]
) -> None:
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
    folder = tmp_path / "checkpoints"
    assert {each.name for each in folder.iterdir()} == {"ckpt-100-1", "ckpt-112-1"}
    (folder / "ckpt-112-1/part-0").write_bytes(b"torn")
    assert run(13) == "104\n", "the step of a torn checkpoint is not offered"
    for each in folder.glob("ckpt-*/part-0"):
        each.write_bytes(b"torn")
    assert run(2) == "16\n"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("script", [example, pytest.param(first_page, marks=pytest.mark.nightly)])
def test_the_others_go_on_when_a_member_is_killed(
    tmp_path: Path, script: Callable[[int], str]
) -> None:
    """`with world:` is what they need for it."""
    plan = tmp_path / "plan.json"
    plan.write_text('{"members": [0, 1], "least": 1}')
    flags = ("--plan", str(plan), "--silent=8")
    with (
        coordinator(tmp_path, *flags) as running,
        workers(tmp_path / "team", script(10**6), torch_training.python()) as made,
    ):

        def step(size: int) -> int:
            """The most steps that a generation of that size reported."""
            found = running.get("/v1/status")
            live = found["state"] == "live" and found["size"] == size
            return max(each["step"] for each in found["members"]) if live else 0

        for member in range(2):
            made.start(f"m{member}", running.environment(member, OMP_NUM_THREADS="1"))
        wait_for(lambda: step(2) >= 20, lambda: made.errors("m0"))
        made.kill("m1")
        wait_for(lambda: step(1) > 0, lambda: made.errors("m0"))
        before = step(1)
        wait_for(lambda: step(1) > before, lambda: made.errors("m0"))
        assert before >= 20
        assert made.running["m0"].poll() is None

"""A training script for PyTorch as users write it, and the Python that can run it."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

NAMED = "LOCKSTEP_TORCH_PYTHON"
SYSTEMS = "/usr/bin/python3"
IMPORTS = "import torch.distributed as d; assert d.is_available()"
SELF = "PYTHON"  # stands for python() in a launcher's arguments
RECORDS, BATCH = 20_000, 240
# Outside of the tree, so that it is downloaded once: python3 -m venv there, and pip install torch numpy.
CACHED = Path(
    os.environ.get("LOCKSTEP_CACHE") or Path.home() / ".cache", "lockstep-torch/venv/bin/python"
)
NEEDS = f"no Python here imports torch (set LOCKSTEP_TORCH_PYTHON, or pip install torch numpy for {CACHED})"

# Prints a line of JSON for each step on each rank: step, generation, size, record ids, loss of the whole step. Rests
# after each step, but not at the size that a fourth argument names, if there is one.
SCRIPT = """
import json, os, sys, time
import torch, torch.distributed as dist
import lockstep_train as lt
steps, batch, pause_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
hurries_at = int(sys.argv[4]) if len(sys.argv) > 4 else None
torch.set_num_threads(1)
torch.manual_seed(1)
features = torch.randn(20000, 12, dtype=torch.float64)
targets = torch.sin(features.sum(1, keepdim=True))
model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job = lt.join()
order = lt.Order(20000, batch=batch, seed=7, epochs=100)
saved = job.latest()
if saved:
    state = torch.load(saved.path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    order.load(saved.data)

def write(path):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

for world in job.worlds():
    dist.init_process_group("gloo", **world.torch())
    lt.torch.share(model, optimizer, order)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    for step, batch in order.steps(world):
        ids = torch.tensor(batch.ids)
        loss = torch.nn.functional.mse_loss(ddp(features[ids]), targets[ids])
        optimizer.zero_grad()
        (loss * batch.weight).backward()
        optimizer.step()
        whole = loss.detach() * batch.weight / world.size
        dist.all_reduce(whole)
        line = {"step": step, "generation": world.generation, "size": world.size, "ids": batch.ids,
                "loss": whole.item(), "pid": os.getpid(), "at": time.time()}
        print(json.dumps(line), flush=True)
        if world.size != hurries_at:
            time.sleep(pause_s)
        if step == steps:
            stop = False
            break
        stop = world.over(step)
        if step % 50 == 0 or (stop and world.restarts):
            job.save(step, write, data=order.state())
        if stop:
            break
    dist.destroy_process_group()
"""


def python() -> str:
    """A Python that imports torch with gloo. Skips the test where there is none."""
    return _python(os.environ.get(NAMED, "")) or pytest.skip(NEEDS)


@functools.cache
def _python(named: str) -> str:
    """The system's PyTorch is older, and takes a fraction of the time to start."""
    tried = [named, sys.executable, SYSTEMS, str(CACHED)]
    return next((each for each in filter(None, tried) if runs(each, IMPORTS)), "")


def runs(python: str, script: str) -> bool:
    """Whether there is such a Python, and the script ends well."""
    try:
        return subprocess.run([python, "-c", script], capture_output=True).returncode == 0
    except OSError:
        return False


def need_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes python() the cached one, unless another is named. Skips the test where PyTorch is older than 2.6."""
    if NAMED not in os.environ and CACHED.exists():
        monkeypatch.setenv(NAMED, str(CACHED))
    code = "import torch; major, minor = torch.__version__.split('.')[:2]; assert (int(major), int(minor)) >= (2, 6)"
    if not runs(python(), code):
        pytest.skip("this needs PyTorch 2.6 or newer")


def need_torchrun() -> None:
    """Skips the test where torchrun fails: that of PyTorch 1.13 starts nothing under Python 3.11, where
    Std.from_str("0") finds no member for 0."""
    code = "from torch.distributed.elastic.multiprocessing import Std; assert Std.from_str('0') is not None"
    if not runs(python(), code):
        pytest.skip("torchrun of this PyTorch fails")

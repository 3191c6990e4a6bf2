"""Replicas of real PyTorch processes: what newcomers get, and what is said of ranks that differ.

Design: docs/design/training.md"""

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agent.train import torch_training
from tests.agent.train.coordinators import free_port
from tests.agent.train.test_torch_resize import WITHIN_S, Training
from tests.agent.train.workers import wait_for
from tests.architecture.sources import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# Everything that real scripts have: two models with an optimizer each, a schedule, a scaler, an average, counters,
# dropout.
SCRIPT = """
import json, os, random, sys, time
import numpy, torch, torch.distributed as dist
import lockstep_train as lt
steps, forgets = int(sys.argv[1]), sys.argv[3]
torch.set_num_threads(1)
random.seed(os.getpid()), numpy.random.seed(os.getpid()), torch.manual_seed(os.getpid())
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
critic = torch.nn.Linear(4, 1)
first = torch.optim.AdamW(model.parameters(), lr=2e-3)
second = torch.optim.SGD(critic.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(first, lambda step: min(1.0, (step + 1) / 200))
average = torch.optim.swa_utils.AveragedModel(model)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
counters = {"records": 0, "best": torch.zeros(2)}
job, order = lt.join(), lt.Order(20000, batch=24, seed=7, epochs=100)
parts = [model, first, order, schedule, critic, second, average, scaler, counters]
if forgets == "schedule":
    parts.remove(schedule)
every = 5 if forgets == "step" else 0
for world in job.worlds():
    dist.init_process_group("gloo", **world.torch())
    lt.torch.share(*parts, every=every)
    draws = [random.random(), numpy.random.rand(), torch.rand(1).item()]
    print(json.dumps({"at": time.time(), "size": world.size, "step": order.step, "draws": draws, "counters": counters["records"],
                      "last": schedule.last_epoch, "pid": os.getpid()}), flush=True)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    other = torch.nn.parallel.DistributedDataParallel(critic)
    for step, batch in order.steps(world):
        inputs = torch.tensor(batch.ids).float().outer(torch.ones(4)) / 20000
        loss = ((ddp(inputs) - other(inputs)) ** 2).mean()
        first.zero_grad(), second.zero_grad()
        (scaler.scale(loss) * batch.weight).backward()
        scaler.step(first), scaler.step(second), scaler.update()
        schedule.step()
        average.update_parameters(model)
        counters["records"] += 24
        counters["best"] += 1
        if forgets == "step" and world.rank == 1 and step == 12:
            with torch.no_grad():
                next(model.parameters())[0, 0] += 1e-6
        time.sleep(0.03)
        end = world.over(step)
        if step == steps or end:
            break
    whole = lt.replicas.Replicas({str(each): part for each, part in enumerate(parts)}, 0, 0).digests()
    print(json.dumps({"at": time.time(), "size": world.size, "step": order.step, "lr": first.param_groups[0]["lr"],
                      "digests": whole}), flush=True)
    dist.destroy_process_group()
    if step == steps:
        break
"""


@pytest.fixture(autouse=True)
def current(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_training.need_current(monkeypatch)


def training(stack: ExitStack, folder: Path, forgets: str, steps: int = 60) -> Training:
    made = Training(stack, folder / "elastic", [2, 4], [], SCRIPT)
    for member in range(4):
        environment = made.coordinator.environment(member, OMP_NUM_THREADS="1")
        made.team.start(f"m{member}", environment, str(steps), "0", forgets)
    return made


def begun(made: Training, size: int) -> list[Any]:
    """What each rank of the size said when its turn began."""
    found: list[Any] = []

    def all_said() -> bool:
        found[:] = [one for one in made.lines() if one["size"] == size and "draws" in one]
        return len(found) == size

    wait_for(all_said, made.story, WITHIN_S)
    return found


def test_newcomers_get_all_that_changes(stack: ExitStack, tmp_path: Path) -> None:
    """In one call, from one rank: schedule, scaler, average, counters and random numbers."""
    made = training(stack, tmp_path, "nothing")
    first = begun(made, 2)
    assert first[0]["draws"] != first[1]["draws"], (
        "at the start each rank keeps its own random numbers"
    )
    made.resize(range(4))
    grown = begun(made, 4)
    steps = {one["step"] for one in grown}
    assert len(steps) == 1
    assert steps != {0}
    (step,) = steps
    assert [(one["counters"], one["last"]) for one in grown] == [(24 * step, step)] * 4
    old = {one["pid"] for one in first}
    new = [one["draws"] for one in grown if one["pid"] not in old]
    source = [one["draws"] for one in grown if one["pid"] in old]
    assert new == [new[0]] * 2
    assert source.count(new[0]) == 1, "the random numbers of one rank"
    made.finish()
    last = [one for one in made.lines() if one["step"] == 60 and "digests" in one]
    assert len(last) == 4
    assert all(one["digests"] == last[0]["digests"] for one in last)
    assert {one["lr"] for one in last} == {2e-3 * 61 / 200}


@pytest.mark.parametrize("forgets", ["schedule", "step"])
def test_replicas_that_differ_are_an_error_that_names_them(
    stack: ExitStack, tmp_path: Path, forgets: str
) -> None:
    """A schedule that newcomers do not get changes their learning rate at once; a weight shows every five steps."""
    made = training(stack, tmp_path, forgets, 10_000)
    if forgets == "schedule":
        begun(made, 2)
        wait_for(lambda: made.coordinator.get("/v1/status")["members"][0]["step"] > 8, made.story)
        made.resize(range(4))
        size, says = 4, "AdamW on rank"
    else:
        size, says = 2, "Sequential on rank 1 ("

    def failed() -> list[str]:
        return [
            made.team.errors(name)
            for name in made.team.running
            if "ReplicasDiffer" in made.team.errors(name)
        ]

    wait_for(lambda: len(failed()) == size, made.story, WITHIN_S)
    for text in failed():
        line = next(line for line in text.splitlines() if "ReplicasDiffer: " in line)
        assert "replicas differ after step" in line
        assert says.split(" (")[0] in line, line
        if forgets == "schedule":
            assert " (lr " in line, line
            assert "instead of" in line


ONCE = """
import contextlib, json, random, torch, torch.distributed as dist
import lockstep_train as lt
import lockstep_train.replicas
world = lt.join().follow()
dist.init_process_group("gloo", **world.torch())
"""


def ranks(size: int, script: str, folder: Path) -> list[Any]:
    """Runs the script in processes of one generation, as a launcher does; returns the last line of each."""
    if not (folder / "lockstep_train").exists():
        (folder / "lockstep_train").symlink_to(ROOT / "agent/train")
    general = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    general |= {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    general |= {name: value for name, value in os.environ.items() if "LOCKSTEP" not in name}
    running = [
        subprocess.Popen(
            [torch_training.python(), "-c", ONCE + script + END],
            env={**general, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        for rank in range(size)
    ]
    found = [one.communicate(timeout=200) for one in running]
    assert [one.returncode for one in running] == [0] * size, [
        errors[-2000:] for _, errors in found
    ]
    return [json.loads(out.splitlines()[-1]) for out, _ in found]


END = "\ndist.destroy_process_group()\n"  # else gloo may abort at the exit

DIGESTS = """
import numpy
def changed(state, how):
    how(state)
    return lt.replicas.digest(state)
base = lambda: {"a": torch.arange(20000.0), "b": [1, 2.5, "x", None], "c": torch.ones(3, dtype=torch.bool)}
def swap(s): s["a"][[5, 9000]] = s["a"][[9000, 5]]
def near(s): s["a"][[5, 6]] = s["a"][[6, 5]]
def flip(s): s["a"].view(torch.uint8)[77777] ^= 1
def tail(s): s["c"][2] = False
def number(s): s["b"][1] = 2.5000001
def text(s): s["b"][2] = "y"
def shape(s): s["a"] = s["a"].view(2, -1)
def key(s): s["d"] = s.pop("c")
found = [changed(base(), how) for how in (lambda s: None, lambda s: None, swap, near, flip, tail, number, text, shape, key)]
print(json.dumps([found[0] == found[1], len(set(found[1:])), len(found) - 1]))
"""


def test_a_digest_notices_one_bit_and_the_order(tmp_path: Path) -> None:
    ((same, different, tried),) = ranks(1, DIGESTS, tmp_path)
    assert same
    assert different == tried


SEEDED = """
found = []
for step in (3, 4):
    lt.torch.seed(7, step, world.rank)
    found.append([random.random(), torch.rand(1).item(), torch.nn.functional.dropout(torch.ones(32)).tolist()])
print(json.dumps(found))
"""


def test_random_numbers_of_a_step_are_those_of_its_number_and_rank(tmp_path: Path) -> None:
    found = ranks(2, SEEDED, tmp_path)
    again = ranks(2, "random.random(), torch.rand(7)\n" + SEEDED, tmp_path)
    assert found == again, "what ran before in the process does not matter"
    assert len({json.dumps(step) for rank in found for step in rank}) == 4


COUNTED = """
model, counters = torch.nn.Linear(2, 2), {"n": world.rank}
order = lt.Order(100, 10)
order.load({**order.state(), "step": 4 if world.rank == 1 else 2})
source = lt.torch.share(model, None, order, counters)
print(json.dumps([source, order.step, counters["n"], model.weight.sum().item()]))
"""


def test_the_rank_with_the_most_steps_is_the_source(tmp_path: Path) -> None:
    found = ranks(3, COUNTED, tmp_path)
    assert [one[:3] for one in found] == [[1, 4, 1]] * 3
    assert len({one[3] for one in found}) == 1


WEIGHED = """
from lockstep_train.framework_turn import FrameworkTurn
turn = FrameworkTurn(lt.Order(10, 4, seed=3, epochs=2, micro=MICRO))
model = torch.nn.Linear(1, 1).double()
features = torch.arange(10.0).double()[:, None]
ddp = torch.nn.parallel.DistributedDataParallel(model)
turn.weigh(model)
count, taken, most = turn.accumulated(), 0, 0
found, source = [], iter(turn.batches(None))
following = next(source, None)
while following is not None:
    ids, following, taken = following, next(source, None), taken + 1  # a batch ahead, as frameworks do
    ends, most = taken % count == 0, max(most, len(ids))
    with contextlib.nullcontext() if ends else ddp.no_sync():
        (ddp(features[ids]).mean() / count).backward()
    turn.taken()
    if ends:
        found.append(model.weight.grad.item())
        model.zero_grad()
        turn.over(taken // count)
assert most <= (MICRO or 4), most
order = lt.Order(10, 4, seed=3, epochs=2)
alone = type(world)(None, rank=0, size=1)
wanted = [features[batch.ids].mean().item() for _, batch in order.steps(alone)]
print(json.dumps([found, wanted]))
"""


@pytest.mark.parametrize(("size", "micro"), [(3, None), (3, 1), (2, 1), (1, 3)])
def test_a_framework_takes_the_mean_over_the_records_of_a_step(
    tmp_path: Path, size: int, micro: int | None
) -> None:
    """Steps of four, four and two records on three ranks, one of which has none in the last; or on fewer ranks, which
    accumulate."""
    for found, wanted in ranks(size, f"MICRO = {micro}\n{WEIGHED}", tmp_path):
        assert found == pytest.approx(wanted, rel=1e-12)
        assert len(found) == 6


EQUAL_STEPS = """
torch.manual_seed(world.rank if DIFFERS else 1)
model, order = torch.nn.Linear(2, 2), lt.Order(100, 10)
order.load({**order.state(), "step": 4})
try:
    lt.torch.share(model, None, order)
    print(json.dumps("equal"))
except lt.torch.ReplicasDiffer as error:
    print(json.dumps(str(error)))
"""


def test_equal_steps_with_unequal_weights(tmp_path: Path) -> None:
    """Nothing is sent where all ranks took the same steps, so their digests tell."""
    assert ranks(2, EQUAL_STEPS.replace("DIFFERS", "False"), tmp_path) == ["equal"] * 2
    for says in ranks(3, EQUAL_STEPS.replace("DIFFERS", "True"), tmp_path):
        assert says.startswith("replicas differ after sharing: Linear on ranks 1, 2 (rank 0 has")

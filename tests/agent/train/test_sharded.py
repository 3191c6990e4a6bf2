"""State whose parts lie on several ranks, with real PyTorch: saved by all of them at once, whole before it counts, and
loaded at the same, fewer or more ranks.

Design: docs/design/training.md"""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agent.train import torch_training
from tests.agent.train.test_replicas import ranks
from tests.agent.train.test_torch_resize import Curve, Training

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

MODEL = """
import os, time
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
torch.set_num_threads(1)

def build(mesh):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).double()
    if mesh is not None and "tp" in mesh.mesh_dim_names:
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    if mesh is not None:
        dp = mesh["dp"]
        fully_shard(model[0], mesh=dp), fully_shard(model[2], mesh=dp), fully_shard(model, mesh=dp)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)

def mesh(dp, tp=1):
    return init_device_mesh("cpu", (dp, tp) if tp > 1 else (dp,), mesh_dim_names=("dp", "tp") if tp > 1 else ("dp",))

def whole(model, optimizer):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    found = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))
    sums = []
    def add(value):
        if torch.is_tensor(value):
            sums.append((value.double() * torch.arange(1, value.numel() + 1).reshape(value.shape)).sum().item())
        elif isinstance(value, dict):
            [add(value[key]) for key in sorted(value)]
    [add(each) for each in found]
    return sums if dist.get_rank() == 0 else None
"""
SAVES = (
    MODEL
    + """
job = lt.job.present_job()
order, counters = lt.Order(1000, 24), {"records": 0}
model, optimizer, schedule = build(MESH)
for step, batch in order.steps(world):
    torch.manual_seed(step)
    model(torch.rand(8, 12).double()).square().mean().backward()
    optimizer.step(), optimizer.zero_grad(), schedule.step()
    counters["records"] += 24
    if step == 4:
        break
lt.torch.save(job, step, model, optimizer, schedule, order, counters, wait=WAIT)
job.checkpoints.wait()
print(json.dumps([whole(model, optimizer), schedule.last_epoch, counters["records"], order.step, torch.rand(1).item()]))
"""
)
LOADS = (
    MODEL
    + """
job = lt.job.present_job()
order, counters = lt.Order(1000, 24), {}
model, optimizer, schedule = build(MESH)
saved = lt.torch.load(job, model, optimizer, schedule, order, counters)
assert saved.step == 4
print(json.dumps([whole(model, optimizer), schedule.last_epoch, counters["records"], order.step, torch.rand(1).item()]))
"""
)


@pytest.fixture(autouse=True)
def current(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_training.need_current(monkeypatch)


def run(size: int, script: str, mesh: str, folder: Path, *, wait: str = "True") -> list[Any]:
    """What the ranks say, with the sums of the whole state from rank 0."""
    found = ranks(size, script.replace("MESH", mesh).replace("WAIT", wait), folder)
    assert all(one[1:4] == [4, 96, 4] for one in found)
    return found


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("size", "mesh", "wait", "others"),
    [
        (2, "mesh(2)", "True", [(1, "mesh(1)"), (3, "mesh(3)")]),
        (2, "mesh(2)", "False", []),
        (4, "mesh(2, 2)", "True", [(2, "mesh(1, 2)"), (2, "None")]),
    ],
    ids=["fully_shard", "asynchronous", "tensor parallel"],
)
def test_a_divided_state_is_loaded_at_any_size(
    tmp_path: Path, size: int, mesh: str, wait: str, others: list[tuple[int, str]]
) -> None:
    saved = run(size, SAVES, mesh, tmp_path, wait=wait)
    place = tmp_path / "checkpoints/ckpt-4-1"
    assert {each.name for each in place.iterdir()} == {"complete.json", "part-0"} | {
        f"digest-{rank}" for rank in range(size)
    }
    written = {each.name for each in (place / "part-0").iterdir()}
    assert {f"__{rank}_0.distcp" for rank in range(size)} < written, "each rank writes its part"
    noted = [json.loads((place / f"digest-{rank}").read_text())["files"] for rank in range(size)]
    assert sorted(name for one in noted for name in one) == sorted(written)
    same = run(size, LOADS, mesh, tmp_path)
    assert same == saved, "the random numbers go on, too"
    for other, ours in others:
        found = run(other, LOADS, ours, tmp_path)
        assert found[0][0] == pytest.approx(saved[0][0], rel=1e-12)


def test_a_damaged_part_is_found_by_one_rank_and_left_by_all(tmp_path: Path) -> None:
    run(2, SAVES, "mesh(2)", tmp_path)
    newer = SAVES.replace("if step == 4", "if step == 6")
    ranks(2, newer.replace("MESH", "mesh(2)").replace("WAIT", "True"), tmp_path)
    file = tmp_path / "checkpoints/ckpt-6-1/part-0/__1_0.distcp"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))
    run(2, LOADS, "mesh(2)", tmp_path)  # which says step 4


OTHER_WRITER = """
import pathlib
job = lt.job.present_job()
def write(path):
    place = pathlib.Path(path, f"stage-{world.rank}")
    place.mkdir()
    for number in range(3):
        (place / f"layer-{number}").write_text(f"{world.rank} {number}")
job.save(7, write, together=True, data={"step": 7})
dist.barrier()
saved = job.latest(together=True)
files = sorted(str(each.relative_to(saved.path)) for each in pathlib.Path(saved.path).rglob("layer-*"))
print(json.dumps([saved.step, saved.data, files]))
"""


def test_any_writer_into_one_folder(tmp_path: Path) -> None:
    """As DeepSpeed and Megatron write: each rank its own files."""
    files = [f"stage-{rank}/layer-{number}" for rank in range(3) for number in range(3)]
    assert ranks(3, OTHER_WRITER, tmp_path) == [[7, {"step": 7}, files]] * 3


SLOW_WRITER = """
import pathlib
import lockstep_train.checkpoints as ours
job = lt.job.present_job()
job.checkpoints._keep = 99
slow = {"at": None}
def slowed(name):
    function = getattr(ours, name)
    def run(*given):
        if slow["at"] == (name, world.rank):
            time.sleep(0.1)
        return function(*given)
    setattr(ours, name, run)
import time
points = ["_remove", "_forget", "_files", "_digest", "_write_whole", "_size"]
[slowed(name) for name in points]
def write(path):
    if slow["at"] == ("write", world.rank):
        time.sleep(0.1)
    place = pathlib.Path(path)
    (place / f"stage-{world.rank}").mkdir(parents=True)
    for number in range(3):
        (place / f"stage-{world.rank}/layer-{number}").write_text(f"{world.rank} {slow}" + "again" * attempt)
step, wrong = 0, []
for attempt in range(2):  # the second one finds the folders of the first
    step = 0
    for name in [*points, "write"]:
        for rank in range(world.size):
            step, slow["at"] = step + 1, (name, rank)
            job.save(step, write, data={"step": step}, KIND=True)
            dist.barrier()
            slow["at"] = None
            saved = job.latest(together=True)
            text = [each.read_text() for part in saved.parts for each in pathlib.Path(part).rglob("layer-*")]
            if saved.step != step or len(text) != 6 or not all(str((name, rank)) in each for each in text):
                wrong.append([attempt, name, rank, saved.step, len(text)])
    dist.barrier()
    if attempt == 0 and world.rank == 0:
        for each in pathlib.Path("checkpoints").glob("*/complete.json"):
            each.unlink()
    dist.barrier()
print(json.dumps(wrong))
"""


@pytest.mark.parametrize("kind", ["together", "sharded"])
def test_a_rank_may_be_slow_at_any_point_of_a_save(tmp_path: Path, kind: str) -> None:
    """Without a coordinator rank 0 waits for the digests of all parts, also where an earlier attempt left some."""
    script = SLOW_WRITER.replace("KIND", kind)
    assert ranks(2, script, tmp_path) == [[], []]


def test_share_leaves_parts_where_they_are(tmp_path: Path) -> None:
    """At the start each rank has its own part; what is not divided is sent."""
    script = (
        MODEL
        + """
model, optimizer, schedule = build(mesh(2))
counters = {"n": world.rank}
before = whole(model, optimizer)
order = lt.Order(100, 10)
source = lt.torch.share(model, optimizer, order, schedule, counters)
after = whole(model, optimizer)
order.load({**order.state(), "step": 1 - world.rank})
try:
    lt.torch.share(model, optimizer, order)
    says = ""
except ValueError as error:
    says = str(error)
print(json.dumps([source, counters["n"], before == after, says]))
"""
    )
    for source, count, same, says in ranks(2, script, tmp_path):
        assert (source, count, same) == (0, 0, True)
        assert "lockstep_train.torch.load()" in says


FAILS = (
    MODEL
    + """
import torch.distributed.checkpoint.default_planner as planner
planner._validate_global_plan = lambda *given: ["a part is missing"]
job = lt.job.present_job()
order = lt.Order(1000, 24)
model, optimizer, schedule = build(mesh(2))
next(order.steps(world))
lt.torch.save(job, 1, model, optimizer, order)
try:
    job.checkpoints.wait()
    says = ""
except RuntimeError as error:
    says = str(error)
print(json.dumps(says))
"""
)


def test_a_save_that_fails_beside_training_is_an_error(tmp_path: Path) -> None:
    for says in ranks(2, FAILS, tmp_path):
        assert "an earlier checkpoint was not saved" in says
        assert "a part is missing" in says


OTHER_RANK = (
    MODEL
    + """
def offsets(model):
    return [each.__create_chunk_list__()[0].offsets[0] for each in model.state_dict().values()]
def trained():
    model, optimizer, schedule = build(mesh(2))
    model(torch.rand(8, 12).double()).square().mean().backward()
    optimizer.step()
    return model
first = offsets(trained())
dist.destroy_process_group()
lt.collectives.forget_meshes()
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/again", rank=1 - world.rank, world_size=2)
print(json.dumps([first, offsets(trained())]))
"""
)


def test_parts_are_those_of_the_present_rank(tmp_path: Path) -> None:
    """Also where the size is that of an earlier turn, in which the process had another rank."""
    of_rank = [[0, 0, 0, 0], [8, 8, 2, 2]]
    assert ranks(2, OTHER_RANK, tmp_path) == [of_rank, of_rank[::-1]]


# As torch_training.SCRIPT, with a model that is divided anew in each turn.
ELASTIC = """
import json, os, sys, time
import torch, torch.distributed as dist
import lockstep_train as lt
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
steps, batch, pause_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(1)
torch.manual_seed(1)
features = torch.randn(20000, 12, dtype=torch.float64)
targets = torch.sin(features.sum(1, keepdim=True))
job, order = lt.join(), lt.Order(20000, batch=batch, seed=7, epochs=100)
for world in job.worlds():
    dist.init_process_group("gloo", **world.torch())
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()
    fully_shard(model, mesh=init_device_mesh("cpu", (world.size,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.9)
    lt.torch.load(job, model, optimizer, schedule, order)
    for step, batch in order.steps(world):
        ids = torch.tensor(batch.ids)
        loss = torch.nn.functional.mse_loss(model(features[ids]), targets[ids])
        optimizer.zero_grad()
        (loss * batch.weight).backward()
        optimizer.step()
        schedule.step()
        whole = loss.detach() * batch.weight / world.size
        dist.all_reduce(whole)
        print(json.dumps({"step": step, "generation": world.generation, "size": world.size, "ids": batch.ids,
                          "loss": whole.item(), "pid": os.getpid(), "at": time.time()}), flush=True)
        time.sleep(pause_s)
        if step == steps:
            stop = False
            break
        stop = world.over(step)
        if step % 50 == 0 or stop:
            lt.torch.save(job, step, model, optimizer, schedule, order)
        if stop:
            break
    job.checkpoints.wait()
    dist.destroy_process_group()
"""


LAUNCH = ["-m", "lockstep_train.launch", "--stop-wait=20", "--", torch_training.SELF]


@pytest.mark.nightly
@pytest.mark.parametrize("launcher", [[], LAUNCH], ids=["in process", "launch"])
def test_fully_shard_at_two_four_and_three(
    stack: ExitStack, tmp_path: Path, launcher: list[str]
) -> None:
    """The steps, records and losses of a fixed size."""
    steps = 120
    launcher = [
        torch_training.python() if each == torch_training.SELF else each for each in launcher
    ]
    made = Training(stack, tmp_path / "elastic", [2, 4], launcher, ELASTIC)
    made.start(steps, 240, 0.03)
    made.reaches(10, 2)
    made.resize(range(4))
    made.reaches(1, 4)
    made.resize(range(3))
    made.reaches(1, 3)
    made.finish()
    curve = Curve(made.lines())
    curve.is_whole(steps)
    assert curve.size_changes() == [2, 4, 3]
    fixed = Training(stack, tmp_path / "fixed", [3], [], ELASTIC)
    fixed.start(steps, 240, 0.0)
    fixed.finish()
    curve.equals(Curve(fixed.lines()))

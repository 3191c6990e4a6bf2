"""join(), worlds(), over(), save() and latest() without a coordinator: one process, size 1."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent.train import Order, join
from agent.train.checkpoints import MANIFEST


@pytest.fixture(autouse=True)
def laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCKSTEP_COORDINATOR", "RANK", "WORLD_SIZE", "LOCKSTEP_CHECKPOINTS"):
        monkeypatch.delenv(name, raising=False)


def writes(text: str) -> Any:
    return lambda path: Path(path).write_text(text)


def train(folder: Path, steps: int) -> list[list[int]]:
    """The records of each step, for some steps; a checkpoint after each second one."""
    job, order = join(folder), Order(40, 4, seed=1, epochs=2)
    if saved := job.latest():
        assert Path(saved.path).read_text() == f"weights {saved.step}"
        order.load(saved.data)
    taken = []
    for world in job.worlds():
        assert (world.rank, world.size, world.restarts) == (0, 1, False)
        for step, batch in order.steps(world):
            taken.append(batch.ids)
            if step % 2 == 0:
                job.save(step, writes(f"weights {step}"), data=order.state())
            assert not world.over(step)
            if len(taken) == steps:
                break
    return taken


def test_a_job_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    whole = train(tmp_path / "a", 100)
    assert len(whole) == 20
    first = train(tmp_path / "b", 5)
    rest = train(tmp_path / "b", 100)
    assert first[:4] + rest == whole


def test_the_newest_three_are_kept(tmp_path: Path) -> None:
    train(tmp_path, 100)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "ckpt-16-1",
        "ckpt-18-1",
        "ckpt-20-1",
    ]


def damaged(folder: Path, how: str) -> None:
    newest = folder / "ckpt-20-1"
    if how == "vanished folder":
        shutil.rmtree(newest)
    elif how == "torn":
        (newest / "part-0").write_text("wei")
    elif how == "vanished part":
        (newest / "part-0").unlink()
    elif how == "no manifest":
        (newest / MANIFEST).unlink()
    elif how == "half a manifest":
        text = (newest / MANIFEST).read_text()
        (newest / MANIFEST).write_text(text[: len(text) // 2])
    elif how == "another manifest":
        (newest / MANIFEST).write_text(json.dumps([1, 2]))


@pytest.mark.parametrize(
    "how",
    [
        "torn",
        "vanished folder",
        "vanished part",
        "no manifest",
        "half a manifest",
        "another manifest",
    ],
)
def test_a_checkpoint_that_is_not_whole_is_never_offered(tmp_path: Path, how: str) -> None:
    train(tmp_path, 100)
    damaged(tmp_path, how)
    saved = join(tmp_path).latest()
    assert saved is not None
    assert (saved.name, saved.step, saved.data["step"]) == ("ckpt-18-1", 18, 18)


def test_no_checkpoint(tmp_path: Path) -> None:
    assert join(tmp_path / "none").latest() is None


def test_a_writer_that_fails_leaves_no_checkpoint(tmp_path: Path) -> None:
    def fails(path: str) -> None:
        Path(path).write_text("half")
        raise OSError("disk full")

    job = join(tmp_path)
    for _ in job.worlds():
        with pytest.raises(OSError, match="disk full"):
            job.save(1, fails)
        assert job.latest() is None
        job.save(1, writes("whole"))
    saved = job.latest()
    assert saved is not None
    assert Path(saved.path).read_text() == "whole"


def test_an_asynchronous_checkpoint_is_complete_when_it_is_written(tmp_path: Path) -> None:
    job = join(tmp_path)
    with ThreadPoolExecutor() as pool:
        for _ in job.worlds():
            job.save(1, lambda path: pool.submit(Path(path).write_text, "one"), data={"step": 1})
        saved = job.latest()  # the end of the turn waited for it
        assert saved is not None
        assert saved.data == {"step": 1}
        for _ in job.worlds():
            job.save(2, lambda path: pool.submit(Path(path).joinpath("x").write_text, "no folder"))
            with pytest.raises(RuntimeError, match="was not saved"):
                job.checkpoints.wait()


def test_a_folder_as_a_part(tmp_path: Path) -> None:
    def write(path: str) -> None:
        Path(path, "inside").mkdir(parents=True)
        Path(path, "inside/a").write_text("a")

    job = join(tmp_path)
    for _ in job.worlds():
        job.save(1, write)
    saved = job.latest()
    assert saved is not None
    assert Path(saved.path, "inside/a").read_text() == "a"


def test_saving_outside_of_a_turn(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="inside of a turn"):
        join(tmp_path).save(1, writes(""))


def test_data_that_is_no_json_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    job = join(tmp_path)
    for _ in job.worlds():
        with pytest.raises(TypeError):
            job.save(1, writes(""), data={"x": object()})
        with pytest.raises(ValueError, match="JSON"):
            job.save(1, writes(""), data={"x": float("nan")})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"LOCKSTEP_COORDINATOR": "train:28700"}, "must be https"),
        ({"LOCKSTEP_COORDINATOR": "https://x:1", "LOCKSTEP_MEMBER": "-1"}, 'LOCKSTEP_MEMBER="-1"'),
        ({"LOCKSTEP_COORDINATOR": "https://x:1"}, 'LOCKSTEP_MEMBER=""'),
        ({"RANK": "0", "WORLD_SIZE": "two", "LOCAL_RANK": "0"}, 'WORLD_SIZE="two"'),
    ],
)
def test_bad_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], says: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=says):
        join()

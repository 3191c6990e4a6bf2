"""What a checkpoint's parts are told as, and which one is gone on from, with a record that the test sets."""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from agent.train.checkpoints import Checkpoints, Part


class Recorded:
    """Names as the coordinator does; a checkpoint is complete as soon as `complete` says so."""

    def __init__(self) -> None:
        self.named: str | None = None
        self.parts: list[tuple[str, Part]] = []
        self.loaded: list[str] = []
        self.complete = [True]

    def begin(self, step: int, generation: int) -> str:
        return f"ckpt-{step}-{generation}"

    def written(self, name: str, part: Part) -> None:
        self.parts.append((name, part))

    def completed(self, name: str, data: Mapping[str, Any]) -> bool:
        return self.complete.pop(0) if len(self.complete) > 1 else self.complete[0]

    def newest(self) -> str | None:
        return self.named

    def restored(self, name: str) -> None:
        self.loaded.append(name)


def save(made: Checkpoints, step: int, text: str = "w", *, rank: int = 0, parts: int = 1) -> None:
    def write(path: str) -> None:
        Path(path).write_text(text)

    made.save(step, 1, write, rank=rank, parts=parts, data={"step": step})


@pytest.mark.parametrize(
    ("named", "chosen"),
    [
        ("ckpt-4-1", "ckpt-4-1"),  # the newest folder is of a generation that did not count
        ("ckpt-6-1", "ckpt-6-1"),
        ("ckpt-8-1", "ckpt-6-1"),  # vanished
        (None, "ckpt-6-1"),
    ],
)
def test_the_record_says_which_one_is_gone_on_from(
    tmp_path: Path, named: str | None, chosen: str
) -> None:
    record = Recorded()
    made = Checkpoints(str(tmp_path), record)
    for step in (2, 4, 6):
        save(made, step)
    record.named = named
    found = made.latest()
    assert found is not None
    assert (found.name, record.loaded) == (chosen, [chosen])


def test_nothing_is_restored_where_nothing_is_complete(tmp_path: Path) -> None:
    record = Recorded()
    record.named = "ckpt-2-1"
    made = Checkpoints(str(tmp_path), record)
    save(made, 2, rank=1, parts=2)  # rank 0 does not end
    assert made.latest() is None
    assert not record.loaded


def test_the_digest_covers_names_and_contents(tmp_path: Path) -> None:
    record = Recorded()
    made = Checkpoints(str(tmp_path), record)
    contents = {"b": b"x" * 3_000_000, "a/c": b"", "a/b": b"2"}

    def write(path: str) -> None:
        for name, content in contents.items():
            file = Path(path, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    made.save(1, 1, write, rank=2, parts=3, data=None)
    whole = b"".join(name.encode() + b"\0" + contents[name] for name in sorted(contents))
    digest = blake2b(whole, digest_size=16).hexdigest()
    assert record.parts == [("ckpt-1-1", Part(2, 3, digest, 3_000_001))]


def test_rank_0_waits_for_all_parts_before_it_says_complete(tmp_path: Path) -> None:
    record = Recorded()
    made = Checkpoints(str(tmp_path), record)
    save(made, 1, "second", rank=1, parts=2)
    assert not list(tmp_path.glob("*/complete.json"))
    record.complete = [False, False, True]
    save(made, 1, "first", rank=0, parts=2)
    assert record.complete == [True]
    found = made.latest()
    assert found is not None
    assert [Path(part).read_text() for part in found.parts] == ["first", "second"]
    assert (found.step, found.data) == (1, {"step": 1})


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_older_ones_are_deleted_complete_or_torn(tmp_path: Path, keep: int) -> None:
    made = Checkpoints(str(tmp_path), Recorded(), keep=keep)
    (tmp_path / "ckpt-mine-1").mkdir()
    for step in range(1, 7):
        if step in (2, 5):
            save(made, step, rank=1, parts=2)  # torn
        else:
            save(made, step)
    whole = [1, 3, 4, 6]
    least = whole[-keep:][0] if len(whole) > keep else 0
    steps = {int(each.name.split("-")[1]) for each in tmp_path.glob("ckpt-[0-9]*")}
    assert steps == {step for step in range(1, 7) if step >= least}
    assert (tmp_path / "ckpt-mine-1").exists()

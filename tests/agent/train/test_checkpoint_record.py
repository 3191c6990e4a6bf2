"""What a checkpoint's parts are told as, and which one is gone on from, with a record that the test sets."""

import json
from collections.abc import Mapping
from concurrent.futures import Future
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from agent.train.agreement import Ranks
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


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("named", ["ckpt-6-1", None])
def test_a_flipped_bit_is_found_and_the_next_older_one_is_loaded(
    tmp_path: Path, named: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    record = Recorded()
    made = Checkpoints(str(tmp_path), record)
    for step in (2, 4, 6):
        save(made, step, "weights")
    record.named = named
    flip(tmp_path / "ckpt-6-1/part-0", 3)
    found = made.latest()
    assert found is not None
    assert (found.name, record.loaded) == ("ckpt-4-1", ["ckpt-4-1"])
    assert caplog.messages == [
        "checkpoint ckpt-6-1 is damaged: part-0 is not what was written; ckpt-4-1 (step 4) is loaded"
    ]


def test_a_digest_that_was_not_ended_counts_for_nothing(tmp_path: Path) -> None:
    """It is of an earlier attempt at the same checkpoint, with more ranks."""
    made = Checkpoints(str(tmp_path), Recorded())
    (tmp_path / "ckpt-2-1").mkdir()
    (tmp_path / "ckpt-2-1" / "digest-3.new").write_text('{"part": "pa')
    save(made, 2)
    found = made.latest()
    assert found is not None
    assert found.step == 2


def test_a_changed_position_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Checkpoints(str(tmp_path), Recorded())
    for step in (2, 4):
        save(made, step)
    manifest = tmp_path / "ckpt-4-1/complete.json"
    manifest.write_text(manifest.read_text().replace('"step": 4', '"step": 5'))
    found = made.latest()
    assert found is not None
    assert found.step == 2
    assert caplog.messages == ["checkpoint ckpt-4-1 is not whole; ckpt-2-1 (step 2) is loaded"]


def test_where_all_are_damaged_it_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Checkpoints(str(tmp_path), Recorded())
    save(made, 2)
    flip(tmp_path / "ckpt-2-1/part-0", 0)
    assert made.latest() is None
    assert caplog.messages == [
        "checkpoint ckpt-2-1 is damaged: part-0 is not what was written; there is no whole one before"
    ]


def test_checkpoints_of_earlier_versions_have_no_digests(tmp_path: Path) -> None:
    made = Checkpoints(str(tmp_path), Recorded())
    save(made, 2)
    (tmp_path / "ckpt-2-1/digest-0").unlink()
    manifest = tmp_path / "ckpt-2-1/complete.json"
    known = json.loads(manifest.read_text())
    del known["digest"]
    manifest.write_text(json.dumps(known))
    assert made.latest() is not None


class Together(Ranks):
    """Two ranks, of which the other says what the test sets."""

    def __init__(self, rank: int, names: Any, others: bool) -> None:
        self.rank, self.size, self.names, self.others = rank, 2, names, others

    def all(self, agreed: bool) -> bool:
        return agreed and self.others

    def first(self, value: Any) -> Any:
        return value if self.rank == 0 else self.names


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_reads_its_share_of_the_parts(tmp_path: Path, rank: int) -> None:
    made = Checkpoints(str(tmp_path), Recorded())
    for step in (2, 4):
        for part in (1, 0):
            save(made, step, "weights", rank=part, parts=2)
    flip(tmp_path / f"ckpt-4-1/part-{1 - rank}", 0)  # of the other rank's share
    names = ["ckpt-4-1", "ckpt-2-1"]
    found = made.latest(Together(rank, (names, []), others=True))
    assert found is not None
    assert found.step == 4
    flip(tmp_path / f"ckpt-4-1/part-{rank}", 0)
    found = made.latest(Together(rank, (names, []), others=True))
    assert found is not None
    assert found.step == 2
    assert made.latest(Together(rank, (names, []), others=False)) is None, "the other's are damaged"


@pytest.mark.parametrize("ends_late", [False, True])
def test_a_failure_counts_in_the_turn_of_its_save(tmp_path: Path, ends_late: bool) -> None:
    """The next save raises it. In a later turn, after the loss of a member, it is forgotten."""
    for is_later in (False, True):
        made, future = Checkpoints(str(tmp_path), Recorded()), Future[None]()
        made.save(1, 1, lambda path, end=future: end, rank=0, parts=1, data={})  # type: ignore[misc]
        if not ends_late:
            future.set_exception(SystemExit("a member is lost"))
            made._running[0].join()
        if is_later:
            made.give_up()
        if ends_late:
            future.set_exception(SystemExit("a member is lost"))
        if is_later:
            made.wait()
        else:
            with pytest.raises(RuntimeError, match="not saved: a member is lost"):
                made.wait()

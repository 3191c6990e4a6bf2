"""Checkpoints that are complete or not there. A checkpoint is a folder `ckpt-STEP-GENERATION` with a file or
folder for each part; a part is renamed into place when it is written, and `complete.json` comes last. Beside each part
stands the digest of what was written, with which it is compared when it is loaded."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

from . import undo
from .agreement import Ranks
from .client import Answer, CoordinatorError, RequestRefused, Stale, Unreachable
from .membership import Membership
from .step_file import SAVING, mark

_log = logging.getLogger("lockstep_train")
KEEP = 3
_ALONE = Ranks()
MANIFEST = "complete.json"
_LOOK_S = 0.1
COMPLETE_WITHIN_S = 600.0  # from the first part that rank 0 wrote to the last of the others


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint. `path`: its only part, or part 0; `parts`: all, by rank of the ranks that saved."""

    name: str
    step: int
    parts: tuple[str, ...]
    data: dict[str, Any]

    @property
    def path(self) -> str:
        return self.parts[0]


@dataclass(frozen=True)
class Part:
    rank: int
    parts: int
    digest: str  # blake2b, 16 bytes
    size: int  # bytes


class Record(Protocol):
    """The side that decides whether a checkpoint is complete."""

    def begin(self, step: int, generation: int) -> str:
        """Starts a checkpoint and returns its name."""

    def written(self, name: str, part: Part) -> None:
        """A part is in place."""

    def completed(self, name: str, data: Mapping[str, Any]) -> bool:
        """All parts are in place; False: some are missing. Called on rank 0."""

    def newest(self) -> str | None:
        """The name of the newest complete one. None: the record has none."""

    def restored(self, name: str) -> None:
        """Marks a checkpoint as being loaded: later work counts as not done."""


class LocalRecord:
    """The record of processes without a coordinator: a checkpoint is complete when the digests of all parts are in its
    folder."""

    def __init__(self, folder: str) -> None:
        self._folder, self._parts = Path(folder), 1

    def begin(self, step: int, generation: int) -> str:
        return f"ckpt-{step}-{generation}"

    def written(self, name: str, part: Part) -> None:
        self._parts = part.parts

    def completed(self, name: str, data: Mapping[str, Any]) -> bool:
        return all((self._folder / name / f"digest-{rank}").exists() for rank in range(self._parts))

    def newest(self) -> str | None:
        return None

    def restored(self, name: str) -> None:
        """Does nothing: there is no coordinator."""


class CoordinatedRecord:
    """The coordinator counts the parts. within_s: how long an answer is waited for; None: without end."""

    def __init__(self, membership: Membership) -> None:
        self._membership, self._client = membership, membership.client
        self.within_s: float | None = None

    @property
    def _identity(self) -> Mapping[str, int]:
        return self._membership.place.identity()

    def begin(self, step: int, generation: int) -> str:
        body = {**self._identity, "generation": generation, "step": step}
        return str(self._insist("begin", body)["name"])

    def written(self, name: str, part: Part) -> None:
        told = {"rank": part.rank, "parts": part.parts, "digest": part.digest, "bytes": part.size}
        self._insist("part", {**self._identity, "name": name, **told})

    def completed(self, name: str, data: Mapping[str, Any]) -> bool:
        body = {**self._identity, "name": name, "data": dict(data)}
        return bool(self._insist("complete", body)["complete"])

    def _insist(self, what: str, body: Mapping[str, Any]) -> Answer:
        return self._client.insist(f"/v1/checkpoint/{what}", body, within_s=self.within_s)

    def newest(self) -> str | None:
        found = self._client.get("/v1/checkpoint/latest", {})
        return None if found is None else str(found["name"])

    def restored(self, name: str) -> None:
        try:
            self._client.insist("/v1/checkpoint/restore", {**self._identity, "name": name})
        except RequestRefused as error:
            # 404: of an earlier Job with the same folder; its tasks are all todo
            if error.status != 404:
                raise


class Checkpoints:
    """The checkpoints of one folder."""

    def __init__(self, folder: str, record: Record, *, keep: int = KEEP) -> None:
        self.folder, self._record, self._keep = Path(folder), record, keep
        self._running: list[threading.Thread] = []
        self._failed: BaseException | None = None
        self._turns = 0

    def save(
        self,
        step: int,
        generation: int,
        write: Callable[[str], Any],
        *,
        rank: int,
        parts: int,
        data: Mapping[str, Any] | None,
        ranks: Ranks = _ALONE,
    ) -> None:
        """Write this rank's part. An error of an earlier asynchronous one is raised here. While the coordinator is
        away the checkpoint is left out: training continues without it. ranks: they begin together, so that rank 0
        counts no digest of an earlier attempt."""
        self._raise()
        json.dumps(data, allow_nan=False)  # what cannot be stored is refused before it is written
        try:
            name = self._record.begin(step, generation)
        except Unreachable as error:
            _log.warning("no checkpoint at step %d: %s", step, error)
            return
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        made = place / f"part-{rank}.new"
        _remove(made)
        _forget(place, lambda of: of == rank or (rank == 0 and of >= parts))
        ranks.all(True)
        part, known = place / f"part-{rank}", dict(data or {})
        saving = _Saving(name, step, made, part, rank, parts, known, self._turns)
        self._write(saving, write, _ALONE)

    def _write(self, saving: _Saving, write: Callable[[str], Any], ranks: Ranks) -> None:
        saved, follows = mark(SAVING), False
        try:
            result = write(str(saving.made))
            follows = callable(getattr(result, "result", None))
            if follows:
                self._later(saving, result, saved)
            else:
                ranks.all(
                    True
                )  # those of a writer that does not wait for the others have written, too
                self._finish(saving)
        finally:
            if not follows:
                saved()

    def save_together(
        self,
        step: int,
        generation: int,
        write: Callable[[str], Any],
        *,
        ranks: Ranks,
        data: Mapping[str, Any] | None,
    ) -> None:
        """Saves as save() does, with one folder into which all ranks write at the same time. `write` returns, or its
        future ends, when all of them have written, as that of torch.distributed.checkpoint does. Each rank reads its
        share of the files for the digests."""
        self._raise()
        json.dumps(data, allow_nan=False)
        name, error = "", None
        if ranks.rank == 0:
            try:
                name = self._record.begin(step, generation)
                _remove(self.folder / name / "part-0.new")
                (self.folder / name / "part-0.new").mkdir(parents=True)
                _forget(self.folder / name, lambda of: True)
            except (OSError, CoordinatorError) as failed:
                error = failed
        name = ranks.first(name if error is None else "")
        if not name:
            if error is not None and not isinstance(error, Unreachable):
                raise error
            _log.warning("no checkpoint at step %d: %s", step, error or "rank 0 says why")
            return
        place = self.folder / name
        made = place / "part-0.new"
        known = dict(data or {})
        which = (ranks.rank, ranks.size, known, self._turns)
        saving = _Saving(name, step, made, place / "part-0", *which, together=True)
        self._write(saving, write, ranks)

    def latest(self, ranks: Ranks | None = None) -> Saved | None:
        """The newest complete checkpoint whose parts are what was written; an older one where the newest is damaged or
        has vanished. ranks: each of them reads its share of the parts, and all choose the same."""
        ranks = ranks or Ranks()
        whole = {each.name: each for each in self._complete()}
        names, damaged = ranks.first(self._choice(whole) if ranks.rank == 0 else None)
        for name in names:
            wrong = _damage(self.folder / name, ranks) if name in whole else "it is not there"
            if ranks.all(not wrong):
                if damaged:
                    step = whole[name].step
                    _log.warning("%s; %s (step %d) is loaded", "; ".join(damaged), name, step)
                self._record.restored(name)
                return whole[name]
            damaged.append(f"checkpoint {name} is damaged" + (f": {wrong}" if wrong else ""))
        if damaged:
            _log.error("%s; there is no whole one before", "; ".join(damaged))
        return None

    def newest_step(self) -> int:
        """Returns the step of the newest complete checkpoint; -1: there is none."""
        return max((each.step for each in self._complete()), default=-1)

    def _choice(self, whole: Mapping[str, Saved]) -> tuple[list[str], list[str]]:
        """Returns the names of checkpoints to try, and a sentence for each newer one that is not whole. Those after the
        one that the record names are of generations that did not count."""
        named = self._record.newest()
        newest = _step(named) if named is not None else None
        steps = {name: each.step for name, each in whole.items()}
        names = [name for name in steps if newest is None or steps[name] <= newest]
        names.sort(key=lambda name: (name == named, steps[name]), reverse=True)
        torn = {
            place.parent.name for place in self.folder.glob(f"ckpt-*/{MANIFEST}")
        } - steps.keys()
        torn |= {named} - steps.keys() if named is not None else set()
        least = steps[names[0]] if names else -1
        return names, [
            f"checkpoint {name} is not whole" for name in sorted(torn) if (_step(name) or 0) > least
        ]

    def give_up(self) -> bool:
        """Gives up all saves that began until now, which need a member that is lost, and forgets their failures.
        Returns whether one was under way."""
        self._turns += 1
        self._failed = None
        running, self._running = self._running, []
        return any(each.is_alive() for each in running)

    def wait(self) -> None:
        """Waits until all asynchronous parts are written. Raises RuntimeError when the turn's collectives are ended
        meanwhile."""
        for thread in self._running:
            while thread.is_alive():
                undo.check_whole()
                thread.join(_LOOK_S)
        self._running.clear()
        self._raise()

    def _later(self, saving: _Saving, future: Future[Any], saved: Callable[[], None]) -> None:
        def finish() -> None:
            try:
                while not future.done():
                    self._check(saving)
                    time.sleep(_LOOK_S)
                future.result()
                if saving.turn == self._turns:
                    self._finish(saving)
            except BaseException as error:  # noqa: BLE001  PyTorch's CheckpointException is one
                if saving.turn == self._turns:
                    self._failed = error  # raised by the next save() or wait()
            finally:
                saved()

        self._running = [each for each in self._running if each.is_alive()]
        thread = threading.Thread(target=finish, name="lockstep-save")
        self._running.append(thread)
        thread.start()

    def _check(self, saving: _Saving) -> None:
        """Raises RuntimeError for a save that is given up, or whose turn is broken."""
        if saving.turn != self._turns:
            raise RuntimeError(f"checkpoint {saving.name} is given up, because a member was lost")
        undo.check_whole()

    def _finish(self, saving: _Saving) -> None:
        files = _files(saving.made)
        if saving.together:
            files = [
                each for each in files if _share(each, saving.made, saving.parts) == saving.rank
            ]
        digest, size = _digest(saving.made, files)
        if not saving.together:
            _remove(saving.place)
            saving.made.rename(saving.place)
        noted = {"part": saving.place.name, "digest": digest, "bytes": size}
        if saving.together:
            noted["files"] = [str(each.relative_to(saving.made)) for each in files]
        _write_whole(saving.place.parent / f"digest-{saving.rank}", json.dumps(noted))
        try:
            self._record.written(saving.name, Part(saving.rank, saving.parts, digest, size))
            if saving.rank == 0:
                self._complete_all(saving)
        except Stale:
            return  # its generation ended, or a newer one is complete: it does not count
        except Unreachable as error:
            _log.warning("checkpoint %s is not complete: %s", saving.name, error)

    def _complete_all(self, saving: _Saving) -> None:
        end, pause_s = time.monotonic() + COMPLETE_WITHIN_S, 0.02
        while not self._record.completed(saving.name, saving.data):
            self._check(saving)
            if time.monotonic() > end:
                raise TimeoutError(
                    f"checkpoint {saving.name}: not all of {saving.parts} parts were written within "
                    f"{COMPLETE_WITHIN_S:.0f} s"
                )
            time.sleep(pause_s)
            pause_s = min(1.0, pause_s * 2)
        folder = saving.place.parent
        parts = [folder / f"part-{rank}" for rank in range(saving.parts)]
        if saving.together:
            _remove(saving.place)
            saving.made.rename(saving.place)
            parts = [saving.place]
        sizes = [_size(part) for part in parts]
        manifest = {"step": saving.step, "data": saving.data, "bytes": sizes}
        _write_whole(folder / MANIFEST, json.dumps({**manifest, "digest": _text_digest(manifest)}))
        self._delete_older()

    def _complete(self) -> list[Saved]:
        found = (_read(place) for place in self.folder.glob("ckpt-*"))
        return [each for each in found if each is not None]

    def _delete_older(self) -> None:
        """Deletes checkpoints older than the ones to keep, both complete and torn ones."""
        complete = sorted(self._complete(), key=lambda each: each.step)
        if len(complete) <= self._keep:
            return
        oldest = complete[-self._keep].step
        for place in self.folder.glob("ckpt-*"):
            step = _step(place.name)
            if step is not None and step < oldest:
                _remove(place)

    def _raise(self) -> None:
        error, self._failed = self._failed, None
        if error is not None:
            raise RuntimeError(f"an earlier checkpoint was not saved: {error}") from error


@dataclass(frozen=True)
class _Saving:
    name: str
    step: int
    made: Path
    place: Path
    rank: int
    parts: int
    data: dict[str, Any]
    turn: int
    together: bool = False  # all ranks write into one folder


def _read(place: Path) -> Saved | None:
    """Reads the checkpoint; None if it is incomplete."""
    try:
        manifest = json.loads((place / MANIFEST).read_text())
        digest = manifest.pop("digest", None)  # earlier versions wrote none
        parts = [place / f"part-{rank}" for rank in range(len(manifest["bytes"]))]
        if [_size(part) for part in parts] != manifest["bytes"]:
            return None
        if digest not in (None, _text_digest(manifest)):
            return None
        names = tuple(map(str, parts))
        return Saved(place.name, int(manifest["step"]), names, dict(manifest["data"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _damage(place: Path, ranks: Ranks) -> str:
    """Returns what differs from what was written, of this rank's share of the parts; "" if nothing does."""
    for number, noted in enumerate(_digests(place)):
        if number % ranks.size == ranks.rank:
            try:
                known = json.loads(noted.read_text())
                part = place / known["part"]
                files = (
                    [part / name for name in known["files"]] if "files" in known else _files(part)
                )
                if _digest(part, files)[0] != known["digest"]:
                    return f"{part.name} is not what was written"
            except OSError as error:
                return f"{error.filename}: {error.strerror}"
            except (ValueError, KeyError, TypeError):
                return f"{noted.name} is not what was written"
    return ""


def _forget(place: Path, which: Callable[[int], bool]) -> None:
    """Removes digests of an earlier attempt at the same checkpoint, by their ranks."""
    for each in _digests(place):
        if which(int(each.name.partition("-")[2])):
            each.unlink(missing_ok=True)


def _digests(place: Path) -> list[Path]:
    """Returns the files with the digests of the parts, without those that were not ended."""
    return sorted(each for each in place.glob("digest-*") if each.suffix != ".new")


def _share(file: Path, folder: Path, ranks: int) -> int:
    """Returns the rank that reads the file for its digest: the same on all of them, in whatever order they see
    files."""
    return crc32(str(file.relative_to(folder)).encode()) % ranks


def _step(name: str) -> int | None:
    """The step in the name of a checkpoint."""
    text = name.partition("-")[2].partition("-")[0]
    return int(text) if text.isdecimal() else None


def _text_digest(manifest: Mapping[str, Any]) -> str:
    as_read = json.loads(json.dumps(manifest))
    return blake2b(json.dumps(as_read, sort_keys=True).encode(), digest_size=16).hexdigest()


def _files(place: Path) -> list[Path]:
    return (
        sorted(each for each in place.rglob("*") if each.is_file()) if place.is_dir() else [place]
    )


def _size(place: Path) -> int:
    return sum(each.stat().st_size for each in _files(place))


def _digest(place: Path, files: list[Path]) -> tuple[str, int]:
    """Over the names and contents of files of the place; and their size in bytes."""
    digest, size = blake2b(digest_size=16), 0
    for each in files:
        digest.update(str(each.relative_to(place)).encode() + b"\0")
        with each.open("rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
                size += len(block)
            os.fsync(content.fileno())
    return digest.hexdigest(), size


def _write_whole(place: Path, text: str) -> None:
    """Writes the file by a rename, so that readers never see a part of it."""
    new = place.with_suffix(".new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(place)


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)

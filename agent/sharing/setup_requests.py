"""What the agent wants of the one who sets GPUs up for sharing (agent/gpu_setup), and what came of it: small
files in a folder that both see, so that either may start anew without the other, and an admin can read
along.

    wanted/UUID.json   by the agent: how the GPU is to be while shares of it are out
    state/UUID.json    by the keeper: whether it is so
    keeper.json        by the keeper: what it is able to
    keeper.lock        held by the keeper as long as it lives
    shm/, UUID/pipe/   what clients of MPS share with their server"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

STATES = "state"
T = TypeVar("T", "DesiredSetup", "SetupState", "SetupCapabilities")


@dataclass(frozen=True, slots=True)
class DesiredSetup:
    mps: bool = False
    slice: str = ""  # of ways.TIME_SLICES
    limit_mib: int = 0  # of each client of MPS that does not say less


@dataclass(frozen=True, slots=True)
class SetupState:
    wanted: dict[str, Any]  # what it was made for
    why: str = ""  # why it is not so; empty: it is


@dataclass(frozen=True, slots=True)
class SetupCapabilities:
    """Why it can't; empty: it can."""

    mps: str = ""
    slices: str = ""


class SetupRequests:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.desired_folder, self.state_folder = folder / "wanted", folder / STATES
        self.shm = folder / "shm"

    def pipe(self, uuid: str) -> Path:
        return self.folder / uuid / "pipe"

    def logs(self, uuid: str) -> Path:
        return self.folder / uuid / "log"

    def make(self) -> None:
        """Raises OSError."""
        for folder in (self.desired_folder, self.state_folder, self.shm):
            folder.mkdir(parents=True, exist_ok=True)
        self.shm.chmod(0o1777)

    # The agent's

    def request(self, uuid: str, wanted: DesiredSetup) -> None:
        """Raises OSError."""
        if self.desired(uuid) != wanted:
            self.make()
            _write(self.desired_folder / f"{uuid}.json", asdict(wanted))

    def forget(self, uuid: str) -> None:
        (self.desired_folder / f"{uuid}.json").unlink(missing_ok=True)

    def state(self, uuid: str) -> SetupState | None:
        return _read(self.state_folder / f"{uuid}.json", SetupState)

    def ready(self, uuid: str) -> str:
        """Why the GPU is not as it is wanted; empty: it is."""
        wanted, state = self.desired(uuid), self.state(uuid)
        if why := self.unavailable():
            return why
        if wanted is None or state is None or state.wanted != asdict(wanted):
            return (state.why if state else "") or "it is being set up"
        return state.why

    def failure(self, uuid: str) -> str:
        """What has gone wrong with the GPU; empty: nothing, though it may still be in the making."""
        state = self.state(uuid)
        return self.unavailable() or (state.why if state else "")

    def capabilities(self) -> SetupCapabilities:
        if why := self.unavailable():
            return SetupCapabilities(why, why)
        return _read(self.folder / "keeper.json", SetupCapabilities) or SetupCapabilities(
            "it is starting", "it is starting"
        )

    def unavailable(self) -> str:
        """Why nobody is there to do what is wanted; empty: somebody is."""
        try:
            with (self.folder / "keeper.lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
        except OSError:
            pass
        return f"`lockstep-agent gpu-setup` does not run on {self.folder}"

    # Both sides'

    def desired(self, uuid: str) -> DesiredSetup | None:
        return _read(self.desired_folder / f"{uuid}.json", DesiredSetup)

    def all_desired(self) -> dict[str, DesiredSetup]:
        with contextlib.suppress(OSError):
            names = [file.stem for file in sorted(self.desired_folder.glob("*.json"))]
            return {name: wanted for name in names if (wanted := self.desired(name))}
        return {}

    # The keeper's

    @contextmanager
    def exclusive(self) -> Iterator[bool]:
        """Whether we are the keeper, for as long as the block lasts."""
        self.make()
        handle = os.open(self.folder / "keeper.lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(handle)

    def publish(self, capabilities: SetupCapabilities) -> None:
        _write(self.folder / "keeper.json", asdict(capabilities))

    def set_state(self, uuid: str, wanted: DesiredSetup, why: str) -> None:
        _write(self.state_folder / f"{uuid}.json", asdict(SetupState(asdict(wanted), why)))

    def drop_state(self, uuid: str) -> None:
        (self.state_folder / f"{uuid}.json").unlink(missing_ok=True)


def _write(file: Path, value: dict[str, Any]) -> None:
    """Whole or not at all, and only what is new."""
    text = json.dumps(value) + "\n"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if file.read_text(encoding="utf-8") == text:
            return
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)


def _read(file: Path, kind: type[T]) -> T | None:
    """What can't be read is not there."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        return kind(**{each.name: raw[each.name] for each in fields(kind) if each.name in raw})
    except (OSError, ValueError, TypeError):
        return None

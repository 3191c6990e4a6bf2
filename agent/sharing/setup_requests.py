"""The files by which the agent requests GPU setups and gpu_setup answers, so that either side can
restart without the other, and an administrator can read them. Agent and gpu-setup may be of
different versions: file names and JSON fields must not change.

    wanted/UUID.json   by the agent: the setup of the GPU while shares of it are allocated
    state/UUID.json    by gpu-setup: whether the GPU has that setup
    keeper.json        by gpu-setup: what it is capable of
    keeper.lock        locked by gpu-setup while it runs
    shm/, UUID/pipe/   shared by MPS clients and their daemon"""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from agent.bounded_files import MOST_BYTES, read_json, read_text, replace_text

STATES = "state"
UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
T = TypeVar("T", "DesiredSetup", "SetupState", "SetupCapabilities")


@dataclass(frozen=True, slots=True)
class DesiredSetup:
    mps: bool = False
    slice: str = ""  # of sharing_mode.TIME_SLICES
    limit_mib: int = 0  # memory limit of an MPS client that sets no lower one


@dataclass(frozen=True, slots=True)
class SetupState:
    wanted: dict[str, Any]  # the request that this state answers
    why: str = ""  # why the GPU does not have the setup; empty if it has


@dataclass(frozen=True, slots=True)
class SetupCapabilities:
    """Reasons why gpu-setup cannot configure MPS or time slices; "" if it can."""

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

    # For the agent

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
        """Returns why the GPU does not have the requested setup; "" if it has."""
        wanted, state = self.desired(uuid), self.state(uuid)
        if why := self.unavailable():
            return why
        if wanted is None or state is None or state.wanted != asdict(wanted):
            return (state.why if state else "") or "setup in progress"
        return state.why

    def failure(self, uuid: str) -> str:
        """Returns why the setup failed; "" if it succeeded or is in progress."""
        state = self.state(uuid)
        return self.unavailable() or (state.why if state else "")

    def capabilities(self) -> SetupCapabilities:
        if why := self.unavailable():
            return SetupCapabilities(why, why)
        return _read(self.folder / "keeper.json", SetupCapabilities) or SetupCapabilities(
            "gpu-setup is starting", "gpu-setup is starting"
        )

    def unavailable(self) -> str:
        """Returns why requests are not served; "" if gpu-setup runs."""
        try:
            with (self.folder / "keeper.lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
        except OSError:
            pass
        return f"`lockstep-agent gpu-setup` is not running for {self.folder}"

    # For both

    def desired(self, uuid: str) -> DesiredSetup | None:
        return _read(self.desired_folder / f"{uuid}.json", DesiredSetup)

    def all_desired(self) -> dict[str, DesiredSetup]:
        with contextlib.suppress(OSError):
            names = [file.stem for file in sorted(self.desired_folder.glob("*.json"))]
            known = (name for name in names if UUID.fullmatch(name))
            return {name: wanted for name in known if (wanted := self.desired(name))}
        return {}

    # For gpu-setup

    @contextmanager
    def exclusive(self) -> Iterator[bool]:
        """Yields whether this process has the lock, which it keeps for the block."""
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
    """Writes atomically, and only if the content changes."""
    text = json.dumps(value) + "\n"
    with contextlib.suppress(OSError):
        if read_text(file) == text:
            return
    replace_text(file, text)


def _read(file: Path, kind: type[T]) -> T | None:
    """Reads the values; None if the file is missing or unreadable, or a field has a value of another type."""
    types = {name: get_origin(hint) or hint for name, hint in get_type_hints(kind).items()}
    try:
        raw = read_json(file, MOST_BYTES)
        given = {each.name: raw[each.name] for each in fields(kind) if each.name in raw}
        return kind(**given) if all(type(given[key]) is types[key] for key in given) else None
    except (OSError, TypeError):
        return None

"""What a launcher does with its processes, generation by generation, with a membership that the test plays. The
processes are real."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.train import launch
from agent.train.client import Unreachable
from agent.train.environment import PodPlace
from agent.train.generation import NOTHING, Generation, MemberSeen
from agent.train.launch import TRY_AGAIN, Launcher
from agent.train.step_file import STEP_FILE

PLACE = PodPlace(3, 70, "p", "u", "10.0.0.3", 1, "", "n")
OVER = Generation(9, "waiting", over=True)


def live(number: int, size: int = 1) -> Generation:
    members = [MemberSeen(3, 70, 0, "a", "n", 0)]
    members += [MemberSeen(10 + rank, 1, rank, "b", "m", rank) for rank in range(1, size)]
    return Generation(number, "live", tuple(members), "a", 29000)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STEP_FILE, "")  # a launcher sets it


class Lease:
    """That of a process that hears of its coordinator."""

    span_s, hang_s = 30.0, 60.0
    is_expired = False

    def worked(self) -> None: ...

    def begin(self) -> None: ...

    def busy(self) -> Any:
        return _nothing()

    def unanswered(self) -> bool:
        return self.is_expired

    def expired(self, *, waiting: bool = False) -> bool:
        return self.is_expired


@contextmanager
def _nothing() -> Iterator[None]:
    yield


class Away:
    """A coordinator that cannot be reached."""

    def post(self, path: str, body: dict[str, Any]) -> None:
        raise Unreachable(path)


class Played:
    """generations: those that become live, one after the other; None: there is no further one."""

    place = PLACE
    left_by_plan = False
    client = Away()

    def __init__(self, *generations: Generation | Exception | None) -> None:
        self._left = list(generations)
        self.newest, self.lease = NOTHING, Lease()
        self.asked: list[int] = []
        self.said: list[tuple[int, str]] = []  # code and message of leave()
        self.meanwhile: Callable[[Played], None] = lambda _: None

    def next_live(self, number: int, step: int | None) -> Generation | None:
        self.asked.append(number)
        found = self._left.pop(0)
        if isinstance(found, Exception):
            raise found
        if found is not None:
            self.newest = found
        return found

    def wait_change(self, seen: Generation, timeout_s: float) -> Generation:
        assert 0 < timeout_s < 1
        time.sleep(0.01)
        self.meanwhile(self)
        return self.newest

    def leave(self, code: int, message: Any = "") -> None:
        self.said.append((code, "\n".join(message) if isinstance(message, list) else str(message)))


def run(played: Played, program: str, nproc: int = 1) -> int:
    command = [sys.executable, "-S", "-c", program]
    given = argparse.Namespace(
        command=command, nproc=nproc, framework="", stop_wait=5.0, save_wait=5.0, warm=""
    )
    return Launcher(played, given).run()  # type: ignore[arg-type]


def runs(file: Path, then: str = "") -> str:
    """A program that notes its generation and rank, and then does that."""
    note = f"print(os.environ['LOCKSTEP_GENERATION'], os.environ['RANK'], file=open({str(file)!r}, 'a'))"
    return f"import os, sys, time\n{note}\n{then}"


def noted(file: Path) -> list[str]:
    return sorted(file.read_text().splitlines()) if file.exists() else []


def test_all_processes_that_end_well_are_the_members_end(tmp_path: Path) -> None:
    played, file = Played(live(4)), tmp_path / "ran"
    assert run(played, runs(file), nproc=3) == 0
    assert noted(file) == ["4 0", "4 1", "4 2"]
    assert played.said == [(0, "")]
    assert played.asked == [0]


def test_a_newer_generation_starts_them_again(tmp_path: Path) -> None:
    """With SIGTERM for those that run; the last one ends by itself."""
    file = tmp_path / "ran"
    played = Played(live(4), live(6, 2))

    def meanwhile(played: Played) -> None:
        if noted(file) == ["4 0"]:
            played.newest = live(6, 2)

    played.meanwhile = meanwhile
    then = "if os.environ['LOCKSTEP_GENERATION'] == '4': time.sleep(60)"
    began = time.monotonic()
    assert run(played, runs(file, then)) == 0
    assert time.monotonic() - began < 30
    assert noted(file) == ["4 0", "6 0"]
    assert played.asked == [0, 4]
    assert played.said == [(0, "")]


def test_a_failure_alone_is_the_members_exit_code() -> None:
    played = Played(live(1))
    assert run(played, "import sys; print('out of memory', file=sys.stderr); sys.exit(3)") == 3
    [(code, message)] = played.said
    assert code == 3
    assert "out of memory" in message


def test_a_signal_is_a_code_as_a_shell_says_it() -> None:
    played = Played(live(1))
    assert run(played, "import os; os.kill(os.getpid(), 9)") == 137
    assert [code for code, _ in played.said] == [137]


def test_who_fails_because_a_neighbour_is_lost_goes_on_with_the_next_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ran"
    fails = "if os.environ['LOCKSTEP_GENERATION'] == '1': sys.exit(1)"
    monkeypatch.setattr(launch, "NEIGHBOUR_WITHIN_S", 30.0)
    asked = time.monotonic()

    class Lost(Played):
        @property
        def newest(self) -> Generation:
            """The coordinator knows of the loss a little later."""
            late = noted(file) == ["1 0"] and time.monotonic() > asked + 0.5
            return live(2) if late else self._newest

        @newest.setter
        def newest(self, found: Generation) -> None:
            self._newest = found

    played = Lost(live(1, 2), live(2))
    assert run(played, runs(file, fails)) == 0
    assert noted(file) == ["1 0", "2 0"]
    assert played.said == [(0, "")], "the failure is nobody's"


def test_a_loss_counts_also_when_the_other_processes_took_long_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator knows of it by then."""
    monkeypatch.setattr(launch, "NEIGHBOUR_WITHIN_S", 0.2)
    file, ends = tmp_path / "ran", tmp_path / "ends"
    program = runs(
        file,
        f"""
import signal
def end(*_):
    open({str(ends)!r}, 'w').close()
    time.sleep(0.5)
    os._exit(1)
signal.signal(signal.SIGTERM, end)
if os.environ['LOCKSTEP_GENERATION'] == '1':
    open({str(tmp_path)!r} + '/ready' + os.environ['RANK'], 'w').close()
    while os.environ['RANK'] == '1' or not os.path.exists({str(tmp_path)!r} + '/ready1'):
        time.sleep(0.01)
    sys.exit(1)
""",
    )

    class Lost(Played):
        @property
        def newest(self) -> Generation:
            return live(2) if ends.exists() else self._newest

        @newest.setter
        def newest(self, found: Generation) -> None:
            self._newest = found

    played = Lost(live(1, 2), live(2))
    assert run(played, program, nproc=2) == 0
    assert played.said == [(0, "")]


def test_who_fails_beside_neighbours_that_stay_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "NEIGHBOUR_WITHIN_S", 0.2)
    played = Played(live(1, 2))
    assert run(played, "import sys; sys.exit(5)") == 5
    assert [code for code, _ in played.said] == [5]


def test_who_is_in_no_generation_any_more(capsys: pytest.CaptureFixture[str]) -> None:
    played = Played(None)
    played.left_by_plan = True
    assert run(played, "raise SystemExit(1)") == 0
    assert played.said == [(0, "")]
    assert "member 3 is not needed any more" in capsys.readouterr().err
    lost = Played(None)
    assert run(lost, "raise SystemExit(1)") == TRY_AGAIN
    assert lost.said == []
    assert "counted this one as lost" in capsys.readouterr().err


def test_the_end_of_the_job_ends_the_processes() -> None:
    played = Played(live(1), None)
    played.left_by_plan = True
    played.meanwhile = lambda one: setattr(one, "newest", OVER)
    began = time.monotonic()
    assert run(played, "import time; time.sleep(60)") == 0
    assert time.monotonic() - began < 30


def test_a_member_that_took_steps_and_is_cut_off_tries_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    played = Played(live(1))
    played.lease.is_expired = True
    step = f"import os, time; os.utime(os.environ[{STEP_FILE!r}], (5, 5)); time.sleep(60)"
    began = time.monotonic()
    assert run(played, step) == TRY_AGAIN
    assert time.monotonic() - began < 30
    assert played.said == []
    without = Played(live(1))
    without.lease.is_expired = True
    assert run(without, "") == 0, "of who took none, nothing is known"


def test_a_coordinator_that_cannot_be_reached_is_raised() -> None:
    with pytest.raises(Unreachable):
        run(Played(Unreachable("nobody there")), "")


def assert_taken(flag: str, text: str, value: float | None) -> None:
    """The launcher reads the flag's text as the value; None: it refuses it."""
    if value is not None:
        args = launch._parser().parse_args([flag, text, "--", "a"])
        assert vars(args)[flag.removeprefix("--").replace("-", "_")] == value
        return
    with pytest.raises(SystemExit) as ended:
        launch._parser().parse_args([f"{flag}={text}", "--", "a"])
    assert ended.value.code == 2


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("1024", 1024), ("0", None), ("1025", None), ("-1", None), ("x", None), ("1.5", None)])  # fmt: skip
def test_numbers_of_processes(text: str, value: int | None) -> None:
    assert_taken("--nproc", text, value)


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("86400", 86400.0), ("0.5", 0.5), ("86401", None), ("-1", None), ("nan", None), ("x", None)])  # fmt: skip
def test_seconds_to_stop(text: str, value: float | None) -> None:
    assert_taken("--stop-wait", text, value)

"""A program runs in a process that has imported its modules before as it runs in a new one."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from agent.train import warm_spares
from agent.train.child_processes import ChildProcesses
from agent.train.launch import Launcher
from agent.train.warm_spares import WarmSpares
from tests.agent.train.test_launch_course import Played, live
from tests.agent.train.workers import wait_for

# Says what it sees of its surroundings, and what processes that it makes see.
PROGRAM = """
import json, multiprocessing, os, pickle, sys
import slow
class Named: ...
def double(number): return 2 * number
if __name__ == "__main__":
    pickle.loads(pickle.dumps(Named()))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        doubled = pool.map(double, [1, 2])
    seen = {"argv": sys.argv, "path": sys.path[0], "file": os.path.abspath(__file__), "doubled": doubled,
            "same": sys.modules["__main__"].__dict__ is globals(), "input": sys.stdin.read(), "words": slow.WORDS,
            "environment": dict(os.environ), "folder": os.getcwd()}
    with open(os.environ["SEEN"], "w") as file:
        json.dump(seen, file)
    print("a line on stderr", file=sys.stderr)
    sys.exit(int(os.environ["CODE"]))
"""
# Notes the process that imports it, and when.
SLOW = """
import os, time
WORDS = "imported"
with open(os.environ["IMPORTS"], "a") as file:
    print(os.getpid(), time.monotonic(), file=file)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/program.py").write_text(PROGRAM)
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/slow.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    monkeypatch.setenv("IMPORTS", str(tmp_path / "imports"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def made(folder: Path) -> Iterator[Callable[..., WarmSpares]]:
    every: list[WarmSpares] = []

    def make(*command: str, modules: str = "slow", count: int = 1) -> WarmSpares:
        spares = WarmSpares([sys.executable, *command], modules, count)
        every.append(spares)
        spares.prepare()
        return spares

    yield make
    for spares in every:
        spares.close()


def imports(folder: Path) -> list[int]:
    """The processes that have imported it."""
    file = folder / "imports"
    return [int(line.split()[0]) for line in file.read_text().splitlines()] if file.exists() else []


def run(spares: WarmSpares | None, command: list[str], more: Mapping[str, str]) -> tuple[int, str]:
    """The exit code, and the last lines."""
    children = ChildProcesses([sys.executable, *command], [more], spares)
    wait_for(lambda: not children.running(), "its end")
    lines = children.last_lines()
    code = children.failed_code() or 0
    children.stop(0.0)
    return code, lines


@pytest.mark.parametrize(
    "command",
    [
        ["there/program.py", "a", "-b"],
        ["-u", "there/program.py"],
        ["-O", "-m", "there.program", "x"],
    ],
    ids=["script", "option", "module"],
)
@pytest.mark.parametrize("code", [0, 3])
def test_it_sees_what_a_new_process_sees(
    folder: Path, made: Callable[..., WarmSpares], command: list[str], code: int
) -> None:
    seen = []
    spares = made(*command)
    wait_for(lambda: len(imports(folder)) == 1, "the import")
    for number, each in enumerate((spares, None)):
        file = folder / f"seen{number}"
        more = {"RANK": "5", "CODE": str(code), "SEEN": str(file)}
        assert run(each, command, more) == (code, "a line on stderr")
        seen.append(json.loads(file.read_text()))
    assert seen[0]["words"] == "imported"
    assert seen[0]["doubled"] == [2, 4]
    for one in seen:
        del one["environment"]["SEEN"]
    assert seen[0] == seen[1]


def test_an_exception_is_the_programs_own(folder: Path, made: Callable[..., WarmSpares]) -> None:
    (folder / "fails.py").write_text("x = 1\nraise ValueError('it has no data')\n")
    code, lines = run(made("fails.py"), ["fails.py"], {})
    assert code == 1
    assert 'fails.py", line 2, in <module>' in lines
    assert lines.endswith("ValueError: it has no data")


def test_a_spare_that_has_died_is_not_used(folder: Path, made: Callable[..., WarmSpares]) -> None:
    """Nor does it matter what it could not import."""
    (folder / "modules/slow.py").write_text("import os\nos.path.exists('die') and os._exit(9)\n")
    (folder / "ends.py").write_text("print('ran', file=__import__('sys').stderr)")
    (folder / "die").touch()
    spares = made("ends.py", modules="slow,not_there", count=2)
    deadline = time.monotonic() + 60
    while any(child.poll() is None for child, _ in spares._spares):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (folder / "die").unlink()
    assert run(spares, ["ends.py"], {}) == (0, "ran")
    spares.prepare()
    assert run(spares, ["ends.py"], {}) == (0, "ran")


def test_spares_end_with_their_launcher(folder: Path) -> None:
    program = (
        "import sys, time\nfrom agent.train.warm_spares import WarmSpares\n"
        "WarmSpares([sys.executable, 'x.py'], 'slow', 2).prepare()\nprint(flush=True)\ntime.sleep(600)\n"
    )
    root = Path(__file__).parents[3]
    path = f"{root}:{os.environ['PYTHONPATH']}"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        wait_for(lambda: len(imports(folder)) == 2, "two spares")
        launcher.kill()
    wait_for(lambda: not any(map(lives, imports(folder))), "the spares' end")


def lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-c", "python x.py"],
        ["python3", "-c", "pass"],
        ["python3", "-I", "x.py"],
        ["python3", "-m"],
        ["python3"],
        ["python3", "folder"],
        ["python3", "-X", "dev", "x.py"],
    ],
    ids=" ".join,
)
def test_other_commands_have_none(folder: Path, command: list[str]) -> None:
    spares = WarmSpares(command, "slow", 1)
    spares.prepare()
    assert spares.complete
    assert spares.take({}) is None
    assert imports(folder) == []


def test_an_interpreter_that_leaves_out_the_scripts_folder_has_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    assert WarmSpares([sys.executable, "x.py"], "slow", 1).complete


@pytest.mark.parametrize(
    ("modules", "unknown"),
    [
        ("slow,json.decoder", ""),
        ("slow,,torhc,json", "torhc"),
        ("no.such,torch numpy,.x", "no.such, torch numpy, .x"),
        ("torch", ""),
        ("", ""),
    ],
)
def test_modules_that_the_interpreter_does_not_find(
    folder: Path, modules: str, unknown: str
) -> None:
    """The default is not asked for: scripts without PyTorch lack it. What is found is not imported."""
    command = [sys.executable, "-u", "there/program.py"]
    assert WarmSpares(command, modules, 1, folder).unknown() == unknown
    assert WarmSpares(["true"], modules, 1, folder).unknown() == ""
    assert WarmSpares(["python-of-nobody", "a.py"], modules, 1, folder).unknown() == ""
    assert not (folder / "imports").exists()


def test_no_modules_are_no_spares(folder: Path) -> None:
    assert WarmSpares([sys.executable, "x.py"], "", 1).complete


@pytest.mark.parametrize(
    ("most", "usable"), [("max\n", float("inf")), ("3000\n", 1000), ("1000", -1000)]
)
def test_memory_is_what_the_container_may_still_use(
    tmp_path: Path, most: str, usable: float
) -> None:
    (tmp_path / "memory.max").write_text(most)
    (tmp_path / "memory.current").write_text("2000\n")
    assert warm_spares.usable_bytes(tmp_path) == usable


@pytest.mark.parametrize(("more", "count"), [(0, 1), (-1, 0)])
def test_little_memory_is_left_to_the_program(folder: Path, more: int, count: int) -> None:
    (folder / "memory.max").write_text(str(warm_spares.LEAST_BYTES + more))
    (folder / "memory.current").write_text("0")
    spares = WarmSpares([sys.executable, "x.py"], "slow", 1, folder)
    spares.prepare()
    assert len(spares._spares) == count
    spares.close()


def test_no_limit_is_known_is_no_limit(tmp_path: Path) -> None:
    assert warm_spares.usable_bytes(tmp_path) == float("inf")


def test_a_later_generation_starts_in_what_was_imported_meanwhile(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The spares of the second one import when the first has taken a step, not before."""
    (folder / "trains.py").write_text(
        "import os, sys, time\nimport slow\n"
        "with open('ran', 'a') as file: print(os.environ['LOCKSTEP_GENERATION'], os.getpid(), file=file)\n"
        "if os.environ['LOCKSTEP_GENERATION'] == '6': sys.exit()\n"
        "while not os.path.exists('step'): time.sleep(0.01)\n"
        "with open(os.environ['LOCKSTEP_STEP_FILE'], 'w') as file: file.write('1')\n"
        "time.sleep(600)\n"
    )
    played, looks = Played(live(5), live(6)), iter(range(1_000_000))

    def meanwhile(_: Played) -> None:
        if (folder / "ran").exists() and not (folder / "step").exists():
            assert len(imports(folder)) == 1
            if next(looks) == 50:
                (folder / "step").touch()
        if len(imports(folder)) == 2:
            played.newest = live(6)

    played.meanwhile = meanwhile
    command = [sys.executable, "trains.py"]
    given = argparse.Namespace(
        command=command, nproc=1, framework="", stop_wait=5.0, save_wait=5.0, warm="slow,torhc"
    )
    assert Launcher(played, given).run() == 0  # type: ignore[arg-type]
    first, second = (folder / "ran").read_text().splitlines()
    assert [first, second] == [
        f"{number} {pid}" for number, pid in zip((5, 6), imports(folder), strict=True)
    ]
    said = capfd.readouterr().err
    assert (
        said.count("lockstep-launch: --warm: the command's Python finds no module torhc, so") == 1
    )

"""Tests can be collected on a fresh machine: importing them starts no program and connects to nothing. Of the seeds of
a test one is tried in a run, the same one for the same day."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

START = "import subprocess\nsubprocess.run(['true'])\n"
CONNECT = "import socket\nsocket.create_connection(('127.0.0.1', 9), 1)\n"
TEST = "def test_nothing() -> None: ...\n"


SEEDED = """import pytest
SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20)]
@pytest.mark.parametrize("seed", [0, *SLOW])
@pytest.mark.parametrize("way", ["a", "b"])
def test_x(way: str, seed: int) -> None: ...
@pytest.mark.parametrize("size", range(5))
def test_y(size: int) -> None: ...
"""


def collect(*arguments: object, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest with an empty home folder and a PATH that has no programs."""
    kept = {name: os.environ[name] for name in os.environ.keys() & {"LANG", "TMPDIR"}}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
            *map(str, arguments),
        ],
        cwd=ROOT,
        env={**kept, "HOME": str(home), "PATH": str(home), **variables},
        capture_output=True,
        text=True,
    )


@pytest.mark.long
@pytest.mark.parametrize("at_import", [START, CONNECT], ids=["a program", "the network"])
def test_what_a_module_does_on_import_is_an_error(tmp_path: Path, at_import: str) -> None:
    module = tmp_path / "test_x.py"
    module.write_text(at_import + TEST)
    done = collect("-c", ROOT / "pyproject.toml", "-p", "tests.conftest", module, home=tmp_path)
    assert "while tests are collected" in done.stdout
    assert done.returncode


@pytest.mark.slow
def test_one_seed_a_day_is_tried_and_all_of_what_is_no_seed(tmp_path: Path) -> None:
    module = tmp_path / "test_x.py"
    module.write_text(SEEDED)

    def chosen(day: str, *tests: str, options: tuple[str, ...] = ()) -> list[str]:
        arguments = ("-c", ROOT / "pyproject.toml", "-p", "tests.conftest", *(tests or (module,)))
        done = collect(*arguments, *options, home=tmp_path, LOCKSTEP_SEED=day)
        return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]

    one, other = chosen("2026-11-28"), chosen("2026-11-29")
    assert one == chosen("2026-11-28") != other
    for way in ("a", "b"):
        assert sum(each.startswith(f"test_x[{way}-") for each in one) == 1
    assert len(one) == len(other) == 7
    assert len(chosen("all")) == 45
    fast = chosen("2026-11-28", options=("-m", "not slow"))
    assert fast[:2] == ["test_x[a-0]", "test_x[b-0]"], "of the seeds that -m leaves one is tried"
    left_out = min({f"test_x[a-{seed}]" for seed in range(20)}.difference(one))
    assert chosen("2026-11-28", f"{module}::{left_out}"), "a test that is asked for by name is run"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_folder_is_collected_without_programs_and_cache(tmp_path: Path) -> None:
    done = collect("tests", home=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "tests/e2e/test_the_chart.py" in done.stdout

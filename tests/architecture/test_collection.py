"""Tests can be collected on a fresh machine: importing them starts no program and connects to nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

START = "import subprocess\nsubprocess.run(['true'])\n"
CONNECT = "import socket\nsocket.create_connection(('127.0.0.1', 9), 1)\n"
TEST = "def test_nothing() -> None: ...\n"


def collect(*arguments: object, home: Path) -> subprocess.CompletedProcess[str]:
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
        env={**kept, "HOME": str(home), "PATH": str(home)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("at_import", [START, CONNECT], ids=["a program", "the network"])
def test_what_a_module_does_on_import_is_an_error(tmp_path: Path, at_import: str) -> None:
    module = tmp_path / "test_x.py"
    module.write_text(at_import + TEST)
    done = collect("-c", ROOT / "pyproject.toml", "-p", "tests.conftest", module, home=tmp_path)
    assert "while tests are collected" in done.stdout
    assert done.returncode


def test_every_folder_is_collected_without_programs_and_cache(tmp_path: Path) -> None:
    done = collect("tests", home=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "tests/e2e/test_the_chart.py" in done.stdout

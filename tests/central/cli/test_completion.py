"""Completion: the shells' scripts, and the answers to kubectl."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.central.cli.run_cli import JOBS, Lockstep, mpi

Json = dict[str, Any]
ASK = "import sys; from central.cli.main import complete; sys.exit(complete())"


def asked(*words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", ASK, *words],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=True,
    )
    *found, last = done.stdout.splitlines()
    assert last == ":4"
    return found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(lockstep: Lockstep, shell: str) -> None:
    assert "lockstep" in lockstep("completion", shell)


def test_kubectl_gets_verbs_flags_and_names(
    lockstep: Lockstep, put: Callable[[str, Json], Json]
) -> None:
    put(JOBS, mpi("train-a"))
    put(JOBS, mpi("train-b"))
    put(JOBS, mpi("other"))
    assert asked("jo") == ["job"]
    assert {"run", "list", "view"} <= set(asked("job", ""))
    assert asked("job", "view", "train-") == ["train-a", "train-b"]
    assert "--follow" in asked("job", "logs", "--fo")


def test_bash_asks_the_command_itself(lockstep: Lockstep, tmp_path: Path) -> None:
    line = "lockstep queue ope"
    done = subprocess.run(
        [sys.executable, "-m", "central"],
        env={
            **os.environ,
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "completions"),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        },
        check=False,
    )
    assert done.returncode == 0
    assert (tmp_path / "completions").read_text().strip() == "operate"

"""Where a command's output cannot go, both programs end with exit code 1, and without a traceback. So they do after
Ctrl-C."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protos.common import command_output

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize(
    ("run", "program"),
    [
        ("-m central --version", "lockstep"),  # written at the end
        ("-u -m agent --help", "lockstep-agent"),  # ... and at once
    ],
)
@pytest.mark.parametrize("to", ["| true", ">/dev/full", ">&-"])
def test_output_that_nobody_takes(run: str, program: str, to: str) -> None:
    command = f"set -o pipefail; {sys.executable} {run} {to}; echo $? >&2"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    ended = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
    )
    *said, code = ended.stderr.splitlines()
    if to == ">/dev/full":
        assert (said, code) == ([f"{program}: standard output: No space left on device"], "1")
    else:  # a pipe takes so much before its reader ends
        assert said == []
        assert code in (("0", "1") if to == "| true" else ("0",))


def test_ctrl_c() -> None:
    def command() -> int:
        raise KeyboardInterrupt

    assert command_output.run("lockstep", command) == 130

"""The core's benchmarks of an earlier commit and of this tree in turn, so that a slow minute of the machine affects
both.

Each tree runs its own programs; rows are compared by name, so a row that only one of them has is left out. The short
form calls the functions of turns.py that both trees have since 8efd8fdd: three rounds take two to three minutes.
"""

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
SHORT = {
    "gang of 8, 5000 nodes": ("one_gang(5000, 8).p50_ms", "ms"),
    "gang of 256, 5000 nodes": ("one_gang(5000, 256).p50_ms", "ms"),
    "750 gangs of 4, rack required, 5000 nodes": ("backlog(5000, 750, 4, RACK)", "pods/s"),
    "100 gangs of 8, rack required, 1000 nodes": ("backlog(1000, 100, 8, RACK)", "pods/s"),
    "10,000 single pods, 5000 nodes": ("singles(5000, 10_000)", "pods/s"),
    "100 changes, 5000 nodes, 40,000 pods": ("changes(5000, 40_000).p50_ms", "ms"),
}
_VALUES = ", ".join(f"{row!r}: ({value}, {unit!r})" for row, (value, unit) in SHORT.items())
_PROGRAM = f"import json; from tests.benchmarks.turns import *; print(json.dumps({{{_VALUES}}}))"
SHORT_COMMAND = (sys.executable, "-c", _PROGRAM)
FULL_COMMAND = (sys.executable, "-m", "tests.benchmarks.bench", "--core", "-o", "json")
MUCH = 1.1  # times slower: worth a word

Compared = tuple[str, float, float, str, float]  # row, then, now, unit, how many times slower now


def compare(
    commit: str, rounds: int, say: Callable[[str], None], command: Sequence[str]
) -> list[Compared]:
    """Takes the best of the rounds for each row. command: prints the rows of one tree. Raises CalledProcessError for an
    unknown commit or a failed run."""
    then: dict[str, list[float]] = {}
    now: dict[str, list[float]] = {}
    units: dict[str, str] = {}
    with checked_out(commit) as folder:
        for number in range(rounds):
            for name, tree, found in ((commit, folder, then), ("this tree", ROOT, now)):
                say(f"{name}, round {number + 1} of {rounds}")
                for row, (value, unit) in rows_of(tree, command).items():
                    found.setdefault(row, []).append(value)
                    units[row] = unit or units.get(row, "")
    return [compared(row, then[row], now[row], units[row]) for row in now if row in then]


def compared(row: str, then: list[float], now: list[float], unit: str) -> Compared:
    if unit.endswith("/s"):  # more is better
        before, after = max(then), max(now)
        return row, before, after, unit, before / after
    before, after = min(then), min(now)
    return row, before, after, unit, after / before


def rows_of(tree: Path, command: Sequence[str]) -> dict[str, tuple[float, str]]:
    """Values and units. Early commits printed no unit: theirs are empty."""
    done = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    return {row: _value_and_unit(said) for row, said in found.items()}


def _value_and_unit(said: Any) -> tuple[float, str]:
    if isinstance(said, dict):
        return said["value"], said["unit"]
    return (said[0], said[1]) if isinstance(said, list) else (said, "")


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The commit's files in a folder of their own."""
    archive = subprocess.run(
        ("git", "-C", ROOT, "archive", commit), stdout=subprocess.PIPE, check=True
    )
    with TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
        yield Path(folder)

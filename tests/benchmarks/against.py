"""The core's benchmarks of an earlier commit and of this tree in turn, so that a slow minute of the machine meets both.

Each tree runs its own programs; rows are compared by name, so a row that only one of them has is left out.
"""

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "tests.benchmarks.bench", "--core", "-o", "json")
MUCH = 1.1  # times slower: worth a word

Compared = tuple[str, float, float, str, float]  # row, then, now, unit, how many times slower now


def compare(commit: str, rounds: int, say: Callable[[str], None]) -> list[Compared]:
    """Takes the best of the rounds for each row. Raises CalledProcessError for an unknown commit or a failed run."""
    then: dict[str, list[float]] = {}
    now: dict[str, list[float]] = {}
    units: dict[str, str] = {}
    with checked_out(commit) as folder:
        for number in range(rounds):
            for name, tree, found in ((commit, folder, then), ("this tree", ROOT, now)):
                say(f"{name}, round {number + 1} of {rounds}")
                for row, (value, unit) in rows_of(tree).items():
                    found.setdefault(row, []).append(value)
                    units[row] = unit or units.get(row, "")
    return [compared(row, then[row], now[row], units[row]) for row in now if row in then]


def compared(row: str, then: list[float], now: list[float], unit: str) -> Compared:
    if unit.endswith("/s"):  # more is better
        before, after = max(then), max(now)
        return row, before, after, unit, before / after
    before, after = min(then), min(now)
    return row, before, after, unit, after / before


def rows_of(tree: Path) -> dict[str, tuple[float, str]]:
    """Values and units. Early commits printed no unit: theirs are empty."""
    done = subprocess.run(COMMAND, cwd=tree, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    return {
        row: (said["value"], said["unit"]) if isinstance(said, dict) else (said, "")
        for row, said in found.items()
    }


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The commit's files in a folder of their own."""
    archive = subprocess.run(
        ("git", "-C", ROOT, "archive", commit), stdout=subprocess.PIPE, check=True
    )
    with TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
        yield Path(folder)

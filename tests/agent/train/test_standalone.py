"""lockstep_train needs the standard library of Python 3.9 alone, under its own name."""

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, files, tree

# Used where they are there: file -> package.
OPTIONAL = {
    ("permutation.py", "numpy"),
    ("kept_state.py", "torch"),
    ("pair_check.py", "torch"),
    ("replicas.py", "torch"),
    ("sharded.py", "torch"),
    ("torch.py", "torch"),
    ("torchrun.py", "torch"),
    ("huggingface.py", "transformers"),
    ("lightning.py", "lightning"),
    ("lightning.py", "pytorch_lightning"),
}
SCRIPT = """
import lockstep_train as lt
class World: rank, size = 0, 1
assert [len(batch.ids) for _, batch in lt.Order(10, 4).steps(World)] == [4, 4, 2]
"""


def imported(file: Path) -> set[str]:
    """The packages that a file imports by their absolute names."""
    found = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        if isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return found


def test_it_imports_the_standard_library_alone() -> None:
    assert files("agent/train")
    found = {(file.name, name) for file in files("agent/train") for name in imported(file)}
    assert {each for each in found if each[1] not in sys.stdlib_module_names} == OPTIONAL


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with the package under the name that it has when it is installed."""
    (tmp_path / "lockstep_train").symlink_to(ROOT / "agent/train")
    return tmp_path


def pythons() -> list[str]:
    """This one, and Python 3.9 where it is installed (LOCKSTEP_PYTHON39 names one that is not in PATH)."""
    oldest = os.environ.get("LOCKSTEP_PYTHON39") or shutil.which("python3.9")
    return [sys.executable, oldest or "python3.9"]


@pytest.mark.parametrize("python", pythons(), ids=["this", "3.9"])
def test_it_runs_under_its_own_name(python: str, library: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(library), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-W", "error", "-c", SCRIPT]
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no Python 3.9 here; LOCKSTEP_PYTHON39 names one")
    if run.returncode == 127:
        pytest.skip(run.stderr.strip())
    assert run.returncode == 0, run.stderr


def test_the_wheel(tmp_path: Path) -> None:
    """lockstep-train has the package, its programs, its licence, and needs no other distribution."""
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(tmp_path)!r}))"
    run = subprocess.run(
        [sys.executable, "-c", build],
        cwd=ROOT / "agent/train",
        capture_output=True,
        text=True,
        check=True,
    )
    with zipfile.ZipFile(tmp_path / run.stdout.split()[-1]) as wheel:
        names = wheel.namelist()
        about = next(name for name in names if name.endswith("/METADATA"))
        lines = wheel.read(about).decode().splitlines()
    packed = {f"lockstep_train/{file.relative_to('agent/train')}" for file in files("agent/train")}
    assert {name for name in names if name.endswith(".py")} == packed
    assert "Requires-Python: >=3.9" in lines
    assert not [line for line in lines if line.startswith("Requires-Dist")]
    assert (ROOT / "agent/train/LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_its_syntax_is_that_of_python_3_9() -> None:
    for file in files("agent/train"):
        ast.parse((ROOT / file).read_text(), str(file), feature_version=(3, 9))
    with pytest.raises(SyntaxError):
        ast.parse("match 1:\n    case 1: pass", feature_version=(3, 9))

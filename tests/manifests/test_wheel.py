"""The wheel lockstep-scheduler: one package of its own name, and the same programs as in a checkout."""

import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.architecture.sources import ROOT
from tests.effort import ALL_SEEDS, some

GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
SCRIPTS = {"lockstep", "lockstep-agent", "kubectl-lockstep", "kubectl_complete-lockstep"}
CAPTURE = "tests/captures/hgx-h100-8.json"
# Tests that run against the installed wheel, too: processes of the agent and the scheduler, package data, the wire,
# journals.
BY_WHEEL = (
    "tests/protos/test_wire.py",
    "tests/central/simulator/test_simulate.py",
    "tests/central/server/test_journal.py",
    "tests/central/standalone/test_demo.py",
    "tests/agent/preflight",
)
COMMANDS = (
    "lockstep --help",
    "lockstep demo",
    "lockstep central --kubeconfig none",
    "lockstep coordinate",
    "lockstep simulate none.yaml",
    "lockstep replay none",
    "lockstep topology --server 127.0.0.1:9",
    "lockstep top --server 127.0.0.1:9",
    "lockstep explain a --server 127.0.0.1:9",
    "lockstep what-if --cordon a --kubeconfig none",
    "lockstep report --server 127.0.0.1:9",
    "lockstep migrate check --kubeconfig none",
    "lockstep doctor --kubeconfig none",
    "lockstep job list --kubeconfig none",
    "lockstep queue list --kubeconfig none",
    "lockstep completion bash",
    "lockstep-agent --help",
    "lockstep-agent run --node a --capture none --kubelet-dir .",
    "lockstep-agent topology --capture none",
    "lockstep-agent capture --driver-root none",
    "lockstep-agent gpu-setup --driver-root none",
    "lockstep-agent migrate none",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    run = [sys.executable, "-c", build]
    built = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    return folder / built.stdout.split()[-1]


def test_it_has_one_package_of_its_own_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"lockstep_scheduler"}
    below = {name.split("/")[2] for name in names if name.startswith("lockstep_scheduler/packages")}
    assert below == {"agent", "central", "protos"}
    assert not [name for name in names if "/agent/train/" in name], "a distribution of its own"
    assert [name for name in names if name.endswith("central/standalone/crds/queues.yaml")]


def install(wheel: Path, folder: Path, packages: Iterable[Path]) -> Path:
    """Returns the programs of a new environment with the wheel, and with links to packages of this environment."""
    made: list[str | Path] = [sys.executable, "-m", "venv", "--without-pip", folder]
    subprocess.run(made, check=True, capture_output=True)
    python = folder / "bin/python"
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "-q",
        "--python",
        python,
        "install",
        "--no-deps",
    ]
    subprocess.run([*pip, "--no-index", wheel], check=True, capture_output=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    for package in packages:
        if not (site / package.name).exists():
            (site / package.name).symlink_to(package)
    return folder / "bin"


def packages_of(names: Iterable[str]) -> set[Path]:
    """The files and folders in site-packages of these distributions and of all that they need."""
    found: set[Path] = set()
    left, seen = list(names), set[str]()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        made = metadata.distribution(name)
        base = Path(str(made.locate_file("")))
        found |= {base / file.parts[0] for file in made.files or () if file.parts[0] != ".."}
        needs = [Requirement(line) for line in made.requires or ()]
        left += [
            need.name for need in needs if not need.marker or need.marker.evaluate({"extra": ""})
        ]
    return {path for path in found if path.exists() and path.name != "__pycache__"}


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with all packages."""
    everything = [each.metadata["Name"] for each in metadata.distributions()]
    ours = ("lockstep", "lockstep-scheduler", "lockstep-train", "pip")
    names = [name for name in everything if name not in ours]
    return install(wheel, tmp_path_factory.mktemp("all"), packages_of(names))


@pytest.fixture
def short() -> Iterator[Path]:
    """An empty folder with a path that leaves place for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lw-") as folder:
        yield Path(folder)


def run(programs: Path, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command in an empty folder, without variables of this process."""
    path = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder)}
    argv = [str(programs / command.split(maxsplit=1)[0]), *command.split()[1:]]
    return subprocess.run(
        argv, cwd=folder, env=path, capture_output=True, text=True, timeout=500, check=False
    )


@pytest.mark.slow
def test_the_demo_runs_from_an_empty_folder(programs: Path, short: Path) -> None:
    assert {path.name for path in programs.iterdir()} >= SCRIPTS
    done = run(programs, "lockstep demo", short)
    assert done.returncode == 0, done.stderr
    assert "default/giant: Pending: needs 4 pods x 8 GPUs in one rack" in done.stdout
    assert not list(short.iterdir())


@pytest.mark.slow
def test_modules_run_by_the_package_name(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()  # a user's own package of that name
    (tmp_path / "agent/__init__.py").write_text("raise SystemExit('not ours')")
    for command in ("python -m lockstep_scheduler", "lockstep", "kubectl-lockstep"):
        assert run(programs, f"{command} --version", tmp_path).stdout.startswith("lockstep 0.")
    topology = f"topology --capture {ROOT / CAPTURE} -o json"
    done = run(programs, f"python -m lockstep_scheduler.run agent {topology}", tmp_path)
    assert done.stdout == run(programs, f"lockstep-agent {topology}", tmp_path).stdout != ""


@pytest.mark.nightly  # its demo, modules and sentences are tested above and below
@pytest.mark.timeout(600)
def test_tests_pass_against_the_installed_wheel(programs: Path, short: Path) -> None:
    shutil.copytree(ROOT / "tests", short / "tests", ignore=shutil.ignore_patterns("golden"))
    for name in ("pyproject.toml", "daemonset", "docs"):
        (short / name).symlink_to(ROOT / name)
    command = f"python -m pytest -q -p lockstep_scheduler -p no:cacheprovider {' '.join(BY_WHEEL)}"
    done = run(programs, command, short)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("group", ["", "agent", "central"])
def test_a_missing_package_is_one_sentence(wheel: Path, tmp_path: Path, group: str) -> None:
    """Whichever packages are there, a command works, or one line on stderr says why not. Only help may be longer."""
    found = packages_of(GROUPS[group] if group else ())
    programs = install(wheel, tmp_path / "venv", found)
    folder = tmp_path / "empty"
    folder.mkdir()
    missing = 0
    for command in some(COMMANDS):
        done = run(programs, command, folder)
        assert "Traceback" not in done.stderr, command
        if done.returncode:
            said = done.stderr.strip().splitlines()
            (line,) = [line for line in said if not line.startswith("20")]  # without logs
            program = command.split()[0]
            missing += line.startswith(f"{program}: the Python package ")
            assert line.startswith(program), f"{command}: {line}"
    assert not ALL_SEEDS or missing >= {"": 15, "agent": 5, "central": 0}[group]

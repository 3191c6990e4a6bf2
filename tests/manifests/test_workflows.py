"""The workflows of .github: pinned actions, least rights, commands that exist; actionlint reads them where Go is
installed."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonset import release

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
WRITES = {("release.yml", "publish"), ("release.yml", "pypi")}  # jobs with rights to write


def jobs() -> list[tuple[str, str, dict[str, Any]]]:
    found = []
    for file in FILES:
        workflow = yaml.safe_load(file.read_text())
        assert workflow["permissions"] == {}, f"{file.name}: rights belong to jobs"
        found += [(file.name, name, job) for name, job in workflow["jobs"].items()]
    return found


def steps() -> list[dict[str, Any]]:
    return [step for _, _, job in jobs() for step in job["steps"]]


def test_actions_are_pinned_by_commit_with_their_version_beside_it() -> None:
    lines = [line for file in FILES for line in file.read_text().splitlines() if "uses:" in line]
    assert len(lines) > 5
    for line in lines:
        assert re.search(r"uses: actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@pytest.mark.parametrize(("file", "name", "job"), jobs())
def test_a_job_has_the_rights_that_it_needs(file: str, name: str, job: dict[str, Any]) -> None:
    rights = job["permissions"]
    assert set(rights.values()) <= {"read", "write"}
    assert ("write" in rights.values()) == ((file, name) in WRITES)
    assert job["timeout-minutes"]
    for step in job["steps"]:
        if "checkout@" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_text_from_outside_reaches_commands_as_variables_alone() -> None:
    for step in steps():
        assert "${{" not in step.get("run", ""), step["run"]
    assert not [file for file in FILES if "pull_request_target" in file.read_text()]


def test_commands_name_what_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = " ".join(step.get("run", "") for step in steps())
    for target in re.findall(r"\bmake ([a-z0-9]+)", commands):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    paths = set(re.findall(r"(?<!\S)(?:tests|daemonset|\.github)/\S+", commands))
    assert len(paths) >= 5
    for path in paths:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("step", [step for step in steps() if "run" in step])
def test_the_shell_reads_each_command(step: dict[str, Any]) -> None:
    done = subprocess.run(["bash", "-n"], input=step["run"], text=True, capture_output=True)
    assert not done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_actionlint_has_nothing_to_say() -> None:
    if not (go := shutil.which("go")):
        pytest.skip("actionlint is a Go module, and Go is not installed")
    env = {**os.environ, "GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        [go, "run", ACTIONLINT, *FILES], cwd="/", env=env, capture_output=True, text=True
    )
    if "dial tcp" in done.stderr or "no such host" in done.stderr:
        pytest.skip("the module of actionlint cannot be loaded here")
    assert not done.returncode, done.stdout + done.stderr


def test_templates_and_settings_can_be_read() -> None:
    for file in (ROOT / ".github").rglob("*.yml"):
        assert yaml.safe_load(file.read_text()), file
    for update in yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]:
        assert (ROOT / update["directory"].lstrip("/")).is_dir()


def test_one_variable_fills_in_the_contact(tmp_path: Path) -> None:
    for name in ("SECURITY.md", "Makefile"):
        shutil.copy(ROOT / name, tmp_path / name)
    refused = subprocess.run(["make", "contact"], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode
    assert "make contact CONTACT=security@example.com" in refused.stderr
    command = ["make", "contact", "CONTACT=security@example.com"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    text = (tmp_path / "SECURITY.md").read_text()
    assert "Report a vulnerability to security@example.com in private" in text
    assert release.NO_CONTACT not in text

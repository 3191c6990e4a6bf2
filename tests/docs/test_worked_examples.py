"""The examples of docs/contributing.md are applied to a copy of the code, and run with the tests that they name."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

MOST_FILES = 5
PATCHES = re.findall(
    r"^```diff\n(.*?)^```$", (DOCS / "contributing.md").read_text(), re.MULTILINE | re.DOTALL
)


def files_of(patch: str) -> dict[str, list[str]]:
    """The hunks by path."""
    found = re.findall(r"^\+\+\+ (.+)\n((?:(?!\+\+\+ ).*\n)*)", patch, re.MULTILINE)
    return {
        path: [hunk for hunk in re.split(r"^@@\n", text, flags=re.MULTILINE) if hunk]
        for path, text in found
    }


def applied(text: str, hunk: str) -> str:
    """The text with the hunk in the only place where its other lines stand."""
    lines = hunk.splitlines(keepends=True)
    before = "".join(line[1:] or line for line in lines if line[0] != "+")
    after = "".join(line[1:] or line for line in lines if line[0] != "-")
    assert not before or text.count(before) == 1, f"{text.count(before)} places for:\n{before}"
    return text.replace(before, after) if before else after


def copy_with(patch: str, to: Path) -> Path:
    skip = shutil.ignore_patterns("__pycache__", "golden", "captures", "e2e", "benchmarks")
    for folder in ("central", "protos", "docs", "tests"):
        shutil.copytree(ROOT / folder, to / folder, ignore=skip)
    shutil.copy(ROOT / "pyproject.toml", to)
    for path, hunks in files_of(patch).items():
        file = to / path
        for hunk in hunks:
            file.write_text(applied(file.read_text() if file.exists() else "", hunk))
    return to


def run(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.partition("\n")[0])
def test_each_hunk_of_an_example_has_its_place(patch: str) -> None:
    assert len(files_of(patch)) <= MOST_FILES
    for path, hunks in files_of(patch).items():
        text = file.read_text() if (file := ROOT / path).exists() else ""
        for hunk in hunks:
            text = applied(text, hunk)


@pytest.mark.slow
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.partition("\n")[0])
def test_an_example_applies_and_its_tests_pass(patch: str, tmp_path: Path) -> None:
    files = files_of(patch)
    folder = copy_with(patch, tmp_path / "copy")
    tests = [path for path in files if path.startswith("tests/")]
    pages = (
        ["tests/docs/test_pending_reasons.py"] if any(p.startswith("docs/") for p in files) else []
    )
    assert tests
    run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, *pages)


AGES = """
from central.controllers.composite import new_scheduler
from central.kube.decode.decoder import Decoder
from central.model.decisions import Bind
from central.model.timestamps import DAY_S
from central.scheduler import cycle
from tests.central import factories
from tests.central.kube import api_fixtures

reader, scheduler = Decoder(("lockstep",), ()), new_scheduler()

def pod(name, days):
    raw = api_fixtures.pod(name)
    raw["metadata"] |= {"uid": name, "namespace": "ns"}
    raw["metadata"]["annotations"] = {"example.com/max-image-age-days": days}
    return reader.pod(raw)

def bound(now, *facts):
    return [each.name for each in cycle.schedule_once(scheduler, facts, now) if isinstance(each, Bind)]

node = factories.node("n", labels={"example.com/imaged-on": "1970-01-11"})
assert bound(DAY_S * 11.5, node, factories.report("n"), pod("young", "2")) == ["young"]
while (at := cycle.due(scheduler, DAY_S * 11.5)) == DAY_S * 11.5:
    assert bound(at) == []
assert at == DAY_S * 12.0
assert bound(at, pod("late", "2"), pod("patient", "5")) == ["patient"]
[late] = [gang for gang in scheduler.state.gangs.values() if gang.name == "late"]
assert "1 node: image older than 2 days" in late.attempt.reason, late.attempt.reason
"""


@pytest.mark.slow
def test_the_example_of_a_filter_by_age_refuses_nodes_when_they_are_too_old(tmp_path: Path) -> None:
    [patch] = (patch for patch in PATCHES if "image_age" in patch)
    run(copy_with(patch, tmp_path / "copy"), "-c", AGES)


def test_a_hunk_without_its_place_is_refused() -> None:
    assert applied("a\nb\n", " a\n+x\n b\n") == "a\nx\nb\n"
    for text in ("a\n", "a\nb\na\nb\n"):
        with pytest.raises(AssertionError, match="places"):
            applied(text, " a\n+x\n b\n")

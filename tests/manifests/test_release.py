"""daemonset/release.py: one version in every file that names it, and no release otherwise."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from daemonset import release

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the files that name the version."""
    for file in {file for file, _, _ in release.named(ROOT)} | {ROOT / "CHANGELOG.md"}:
        target = tmp_path / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    return tmp_path


def test_all_files_name_the_same_version() -> None:
    assert len({version for _, _, version in release.named(ROOT)}) == 1


def test_no_other_file_names_an_image_with_a_version() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    known = {str(file.relative_to(ROOT)) for file, _, _ in release.named(ROOT)}
    for name in listed.stdout.split():
        if name.startswith(("tests/", "docs/design/")) or name in known or name == "CHANGELOG.md":
            continue
        file = ROOT / name
        if file.suffix in {".yaml", ".py", ".md", ".tpl", ""} and file.is_file():
            found = re.search(r"lockstep/(agent|central):\d\S*", file.read_text())
            assert not found or name == "daemonset/build-images", f"{name}: {found}"


def test_written_versions_are_the_asked_one(tree: Path) -> None:
    assert len(list(release.problems(tree, "0.0.1"))) > 8, "a newer version is wrong too"
    wrong = list(release.problems(tree, "7.8.9"))
    assert len(wrong) == len({file for file, _, _ in release.named(tree)}) + 1
    assert "pyproject.toml: names " in wrong[0]
    assert wrong[-1].startswith('CHANGELOG.md: no heading "## 7.8.9 (date)"')
    release.write(tree, "7.8.9")
    assert not list(release.problems(tree, "7.8.9"))
    assert "(unreleased)" not in (tree / "CHANGELOG.md").read_text()
    assert list(release.problems(tree, "7.8.90"))


def test_a_file_that_no_longer_names_it_is_said(tree: Path) -> None:
    (tree / "daemonset/chart/Chart.yaml").write_text("name: lockstep\n")
    with pytest.raises(release.Refused, match=r"daemonset/chart/Chart\.yaml: no version found"):
        release.write(tree, "7.8.9")


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3 ", "1.2.3; rm -r /"])
def test_a_word_that_is_no_version_is_refused(version: str) -> None:
    done = subprocess.run(
        [sys.executable, "daemonset/release.py", version], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == f'release: "{version}" is not a version, such as 0.2.0 or 0.2.0-rc1\n'


def test_a_tag_of_another_commit_is_refused_and_a_contact_is_needed() -> None:
    args = release.parser().parse_args(["0.0.1", "--without-images"])
    assert any(
        line.startswith("SECURITY.md names no contact; make contact")
        for line in release.unready(args)
    )
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder)
        subprocess.run(["git", "clone", "-q", "--depth=2", f"file://{ROOT}", clone], check=True)
        for commit, refused in (("HEAD", False), ("HEAD~1", True)):
            subprocess.run(
                ["git", "tag", "-f", "v0.0.1", commit], cwd=clone, check=True, capture_output=True
            )
            argv = [sys.executable, "daemonset/release.py", "0.0.1", "--without-images"]
            done = subprocess.run(argv, cwd=clone, capture_output=True, text=True)
            assert ("the tag v0.0.1 names another commit" in done.stderr) == refused


def test_a_base_without_a_digest_is_refused() -> None:
    argv = [sys.executable, "daemonset/release.py", "999.0.0", "--base", "python:3.12-slim"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "release: --base must name the images' base by digest: IMAGE@sha256:..." in done.stderr

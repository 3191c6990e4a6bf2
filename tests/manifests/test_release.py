"""daemonset/release.py: one version in every file that names it, and no release otherwise."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonset import release
from tests.manifests import helm_program

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


def schemas() -> dict[str, Any]:
    return dict(release.definition_schemas(ROOT / "daemonset/chart"))


def parts(schema: Any) -> Iterator[Any]:
    """Yields a schema and all below it."""
    yield schema
    for each in schema.get("properties", {}).values():
        yield from parts(each)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from parts(schema[key])


def test_each_definition_has_a_strict_schema() -> None:
    made = schemas()
    assert {"batch.volcano.sh/job_v1alpha1.json", "scheduling.volcano.sh/queue_v1beta1.json"} < {
        *made
    }
    assert len(made) == len(list((ROOT / "daemonset/chart/files/crds").glob("*.yaml")))
    for name, schema in made.items():
        assert {"apiVersion", "kind"} <= set(schema["required"]), name
        assert schema["additionalProperties"] is False
        assert not [key for each in parts(schema) for key in each if key.startswith("x-")]
    queue = made["scheduling.volcano.sh/queue_v1beta1.json"]["properties"]["spec"]
    assert queue["additionalProperties"] is False
    job = made["batch.volcano.sh/job_v1alpha1.json"]["properties"]
    template = job["spec"]["properties"]["tasks"]["items"]["properties"]["template"]
    assert template.get("additionalProperties") is not False, (
        "a pod has fields that no definition lists"
    )
    assert job["kind"] == {"const": "Job"}


def test_krews_manifest_names_the_archive_by_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/repo")
    release.write_krew("1.2.3-rc1", tmp_path)
    manifest = yaml.safe_load((tmp_path / "lockstep-krew.yaml").read_text())
    (platform,) = manifest["spec"]["platforms"]
    archive = tmp_path / "lockstep-1.2.3-rc1-krew.tar.gz"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert (
        platform["uri"]
        == f"https://github.com/owner/repo/releases/download/v1.2.3-rc1/{archive.name}"
    )
    subprocess.run(["tar", "-xzf", archive, "-C", tmp_path], check=True)
    script = tmp_path / platform["bin"]
    wheel = "https://github.com/owner/repo/releases/download/v1.2.3-rc1/lockstep_scheduler-1.2.3rc1-py3-none-any.whl"
    assert f"--from {wheel} kubectl-lockstep" in script.read_text()
    done = subprocess.run(
        ["/bin/sh", script, "version"], env={"PATH": ""}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    before = archive.read_bytes()
    release.write_krew("1.2.3-rc1", tmp_path)
    assert archive.read_bytes() == before


def test_artifact_hub_lists_all_definitions_and_images() -> None:
    notes = yaml.safe_load((ROOT / "daemonset/chart/Chart.yaml").read_text())["annotations"]
    listed = {
        f"{each['name']} {each['version']}" for each in yaml.safe_load(notes["artifacthub.io/crds"])
    }
    served = set()
    for file in (ROOT / "daemonset/chart/files/crds").glob("*.yaml"):
        for made in yaml.safe_load_all(file.read_text()):
            served |= {
                f"{made['metadata']['name']} {each['name']}" for each in made["spec"]["versions"]
            }
    assert listed == served
    assert len(yaml.safe_load(notes["artifacthub.io/images"])) == len(release.IMAGES)


def _this_tree() -> str:
    """A commit with the files as they are now, changes that are not committed included."""
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "stash", "create"]
    made = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    return made or "HEAD"


@pytest.mark.slow
@pytest.mark.timeout(helm_program.BUILD_S)
def test_a_release_from_a_tag_in_an_empty_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    packed = tmp_path / "tree.tar"
    subprocess.run(["git", "archive", "-o", packed, _this_tree()], cwd=ROOT, check=True)
    subprocess.run(["tar", "-xf", packed, "-C", clone], check=True)
    commit = ["git", "-c", "user.name=n", "-c", "user.email=e", "commit", "-qam"]
    env = {**os.environ, "HELM": str(helm_program.helm())}
    python = [sys.executable, "daemonset/release.py", "7.8.9"]
    for command in (
        ["make", "-s", "contact", "CONTACT=security@example.com"],
        [*python, "--write"],
        ["git", "init", "-q"],
        ["git", "add", "-A"],
        [*commit, "Release 7.8.9"],
        ["git", "tag", "v7.8.9"],
        [*python, "--without-images"],
    ):
        done = subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    names = {file.name for file in (clone / "build/release-7.8.9").iterdir()}
    assert names == {
        "SHA256SUMS",
        "lockstep-7.8.9-krew.tar.gz",
        "lockstep-7.8.9-schemas.tar.gz",
        "lockstep-7.8.9.tgz",
        "lockstep-7.8.9.yaml",
        "lockstep-krew.yaml",
        "lockstep_scheduler-7.8.9-py3-none-any.whl",
        "lockstep_train-7.8.9-py3-none-any.whl",
    }

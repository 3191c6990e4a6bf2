"""The images' packages are pinned with hashes, as pyproject.toml allows them."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, GROUPS = PYPROJECT["project"], PYPROJECT["dependency-groups"]
ALL = {Requirement(line).name: line for line in PROJECT["dependencies"]}
ALL["opentelemetry-proto"] = PROJECT["optional-dependencies"]["otel"][0]
ASKED = {
    "agent": [ALL[name] for name in GROUPS["agent"]],
    "central": [ALL[name] for name in GROUPS["central"]],
    "build": GROUPS["build"],
}


def test_the_build_group_has_the_build_system() -> None:
    assert set(PYPROJECT["build-system"]["requires"]) <= set(GROUPS["build"])


@pytest.mark.parametrize("image", ASKED)
def test_every_requirement_is_pinned(image: str) -> None:
    text = (ROOT / f"daemonset/requirements-{image}.txt").read_text()
    assert "://" not in text  # no index, no address of a file
    blocks = re.findall(r"^([\w.-]+)==([^\s;]+)(.*(?:\\\n.*)+)", text, re.MULTILINE)
    pinned = {name.lower(): version for name, version, hashes in blocks if "sha256:" in hashes}
    for line in ASKED[image]:
        wanted = Requirement(line)
        version = pinned.get(wanted.name.lower())
        assert wanted.specifier.contains(version or "0"), f"make lock ({line})"


def test_the_images_together_have_all_packages_but_the_demos() -> None:
    assert set(ALL) - {*GROUPS["agent"], *GROUPS["central"]} == {"aiohttp"}

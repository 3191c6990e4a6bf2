"""The images that the manifests name, made of this working tree without a container engine. Each
extra's dependencies are installed into an environment of its own, kept in the user's cache for
as long as pyproject.toml names the same ones."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.e2e import image
from tests.e2e.cluster.settings import CACHE, ROOT, say

STORE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "lockstep-e2e").expanduser()
BUSYBOX = "docker.io/library/busybox:1.36"  # what the examples name
WITHOUT_TRACE = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def build(folder: Path) -> list[Path]:
    """The archives of the agent's and the centre's image, and of what the examples run."""
    busybox = folder / "busybox.tar"
    image.busybox(BUSYBOX, _busybox()).save(busybox, entrypoint=["sh"])
    return [busybox, _ours(folder, "agent", "lockstep-agent"), _ours(folder, "central", "lockstep")]


def _busybox() -> Path:
    return CACHE / "debian/bin/busybox"


def _ours(folder: Path, extra: str, script: str) -> Path:
    project = _project()
    ours = image.Image(f"ghcr.io/lockstep/{extra}:{project['version']}")
    archive, variables = python(extra)
    ours.layer(archive)
    ours.env |= variables
    packages = [ROOT / extra, ROOT / "protos"]
    ours.layer(image.app_layer(_environment(extra), packages, script, project["scripts"][script]))
    path = folder / f"{extra}.tar"
    ours.save(path, entrypoint=[script], directory="/tmp")
    return path


def python(extra: str) -> tuple[bytes, dict[str, str]]:
    """The layer with an interpreter and the extra's packages, and the variables it needs."""
    venv = _environment(extra)
    recipe = hashlib.sha256(Path(image.__file__).read_bytes()).hexdigest()[:12]
    archive, variables = venv / "layer.tar", venv / f"layer-{recipe}.json"
    if not variables.exists():
        content, env = image.python_layer(venv, _busybox())
        archive.write_bytes(content)
        variables.write_text(json.dumps(env))
        say(f"the {extra} image's lower layer is made")
    found: dict[str, str] = json.loads(variables.read_text())
    return archive.read_bytes(), found


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def _environment(extra: str) -> Path:
    project = _project()
    wanted = [*project["dependencies"], *project["optional-dependencies"][extra]]
    told = json.dumps([wanted, sys.version, platform.machine()])
    key = hashlib.sha256(told.encode()).hexdigest()[:12]
    venv = STORE / f"{extra}-{key}"
    if (venv / "complete").exists():
        return venv
    for old in STORE.glob(f"{extra}-*"):
        shutil.rmtree(old)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin/pip", "install", "-q", *wanted], check=True, env=WITHOUT_TRACE)
    (venv / "complete").touch()
    say(f"the {extra} image's packages are installed")
    return venv

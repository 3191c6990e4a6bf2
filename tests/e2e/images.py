"""The images that the manifests name, built of this working tree as an installation builds them: by
daemonset/build-images with buildah, on a base of this machine's Python, since a registry may be out of
reach. Packages for the programs of examples are installed into an environment that is kept in the
user's cache for as long as pyproject.toml names the same ones."""

import fcntl
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e import image
from tests.e2e.cluster import settings
from tests.e2e.cluster.settings import CACHE, ROOT, Trouble, say

STORE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "lockstep-e2e").expanduser()
BASE = "localhost/lockstep/python:e2e"
BUSYBOX = "docker.io/library/busybox:1.36"  # what the examples name
WITHOUT_TRACE = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def build(folder: Path) -> list[Path]:
    """The archives of the agent's and the centre's image, and of what the examples run."""
    busybox = folder / "busybox.tar"
    image.busybox(BUSYBOX, _busybox()).save(busybox, entrypoint=["sh"])
    return [busybox, *built_by_the_dockerfiles(folder)]


def built_by_the_dockerfiles(folder: Path) -> list[Path]:
    """The archives of both images."""
    build_once()
    archives = []
    for name in ("agent", "central"):
        archives.append(folder / f"{name}.tar")
        run("buildah", "push", "--quiet", tag(name), f"docker-archive:{archives[-1]}:{tag(name)}")
    return archives


@functools.cache
def build_once() -> None:
    """Builds both images into buildah's store, unless another process of this run of the tests has."""
    this_run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with _store() as store:
        built_by = store / "built-by"
        if built_by.exists() and built_by.read_text() == this_run:
            return
        _base()
        run("daemonset/build-images", ENGINE="buildah", BASE=BASE)
        built_by.write_text(this_run)
    say("the images of the agent and the scheduler are built")


@contextmanager
def _store() -> Iterator[Path]:
    """The folder that all clusters of this machine share, locked."""
    STORE.mkdir(parents=True, exist_ok=True)
    with (STORE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield STORE


def tag(name: str) -> str:
    return f"ghcr.io/lockstep/{name}:{version()}"


def _base() -> None:
    """In buildah's store: a Python without packages, in place of python:3.12-slim."""
    made = image.Image(BASE)
    layer, _ = image.python_layer(sys.executable, _busybox(), bare=True)
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "base.tar")
        made.layer(layer).save(archive)
        run("buildah", "pull", "--quiet", f"docker-archive:{archive}")


@functools.cache
def storage() -> dict[str, str]:
    """Variables for buildah: its store in plain folders where this file system has no overlays."""
    env = {**os.environ, "PATH": settings.PATH}
    told = subprocess.run(["buildah", "info"], env=env, capture_output=True)
    return {"STORAGE_DRIVER": "vfs"} if told.returncode else {}


def run(*argv: str, **variables: str) -> str:
    """What the program prints. Raises Trouble."""
    env = {**os.environ, **storage(), "PATH": settings.PATH, **variables}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        raise Trouble(f"{' '.join(argv[:2])}: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout


def _busybox() -> Path:
    return CACHE / "debian/bin/busybox"


def python(group: str) -> tuple[bytes, dict[str, str]]:
    """The layer with an interpreter and the packages of a dependency group, and the variables it needs."""
    with _store() as store:
        return _python(_environment(group, store))


def _python(venv: Path) -> tuple[bytes, dict[str, str]]:
    recipe = hashlib.sha256(Path(image.__file__).read_bytes()).hexdigest()[:12]
    archive, variables = venv / "layer.tar", venv / f"layer-{recipe}.json"
    if not variables.exists():
        content, env = image.python_layer(str(venv / "bin/python"), _busybox())
        archive.write_bytes(content)
        variables.write_text(json.dumps(env))
        say("the layer of Python for examples is made")
    found: dict[str, str] = json.loads(variables.read_text())
    return archive.read_bytes(), found


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def _environment(group: str, store: Path) -> Path:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = project["dependency-groups"][group]
    wanted = [
        line for line in project["project"]["dependencies"] if re.split("[<>=]", line)[0] in names
    ]
    told = json.dumps([wanted, sys.version, platform.machine()])
    key = hashlib.sha256(told.encode()).hexdigest()[:12]
    venv = store / f"{group}-{key}"
    if (venv / "complete").exists():
        return venv
    for old in store.glob(f"{group}-*"):
        shutil.rmtree(old)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin/pip", "install", "-q", *wanted], check=True, env=WITHOUT_TRACE)
    (venv / "complete").touch()
    say("the packages for examples are installed")
    return venv

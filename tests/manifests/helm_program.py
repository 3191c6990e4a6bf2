"""Helm, built from the Go module that helm/go.mod pins (go.sum holds its hashes), once per version. It is
kept in the user's cache; two minutes of processor time, the first time."""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.manifests import parsed

MODULE = Path(__file__).parent / "helm"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "lockstep-helm").expanduser()
BUILD_S = 900


@functools.cache
def helm() -> Path:
    """HELM, or the built program. Skips the test where there is neither Go nor the module."""
    if given := os.environ.get("HELM"):
        return Path(given)
    pinned = b"".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    program = CACHE / f"helm-{hashlib.sha256(pinned).hexdigest()[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:  # several test processes want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(program)
    return program


def _build(program: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no helm, and no Go to build it with")
    made = program.with_suffix(".new")
    done = subprocess.run(
        [go, "build", "-trimpath", "-o", made, "helm.sh/helm/v3/cmd/helm"],
        cwd=MODULE, env={**os.environ, "CGO_ENABLED": "0"}, capture_output=True, text=True,
        timeout=BUILD_S,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"helm cannot be built: {done.stderr.strip().splitlines()[-1]}")
    made.rename(program)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Helm that is built from its module takes an API server to be of 1.20, older than the chart admits."""
    version = ("--kube-version=1.35.0",) if arguments[0] == "template" else ()
    return subprocess.run([helm(), *arguments, *version], capture_output=True, text=True)


def template(chart: Path, values: dict[str, Any], folder: Path, namespace: str) -> list[Any]:
    """The objects of `helm template` with these values, which are written into the folder."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = run("template", "lockstep", chart, "-n", namespace, "-f", file)
    assert not done.returncode, done.stderr
    return parsed(done.stdout)

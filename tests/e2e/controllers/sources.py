"""The controllers that people run, built from their Go modules once, into the user's cache.

A module's own go.sum pins what it is built from, and the hash here pins the module. Their manifests come with them.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.cluster.settings import Trouble, say

STORE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "lockstep-controllers").expanduser()


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    module: str
    version: str
    sum: str  # of the module, as in a go.sum
    package: str  # of the program, below the module
    manifests: str  # folder with all of them
    kustomization: str  # below that folder
    left_out: str = ""  # of the kustomization's resources, because it comes from elsewhere

    @property
    def folder(self) -> Path:
        return STORE / f"{self.name}-{self.version}"


JOBSET = Source(
    "jobset",
    "sigs.k8s.io/jobset",
    "v0.12.0",
    "h1:YYPuV0px8Ongq/RXmJg6V0w2UC67aiR+rCMD06vhQQQ=",
    ".",
    "config",
    "default",
)
LWS = Source(
    "lws",
    "sigs.k8s.io/lws",
    "v0.9.0",
    "h1:DcJCgxjjoGOx//QHZkeKpyiblxYq70aCRZNYSfykWyI=",
    "./cmd",
    "config",
    "default",
)
KUBERAY = Source(
    "kuberay",
    "github.com/ray-project/kuberay/ray-operator",
    "v1.6.2",
    "h1:XUckRswLMyk71D00L62d2Vanh0fVkNqu56+IF/rr+O0=",
    ".",
    "config",
    "default",
)
TRAINING_OPERATOR = Source(
    "training-operator",
    "github.com/kubeflow/training-operator",
    "v1.9.3",
    "h1:aaSHqskOtCY8Dn8sVd+l9p5XAczW6O0nYMPjVLAw/lc=",
    "./cmd/training-operator.v1",
    "manifests",
    "overlays/standalone",
)
MPI_OPERATOR = Source(
    "mpi-operator",
    "github.com/kubeflow/mpi-operator",
    "v0.6.0",
    "h1:RzzG03oyQIiHe/SH2k19N+Hp4QkxEsG2l9G1T7US+ys=",
    "./cmd/mpi-operator",
    "manifests",
    "overlays/standalone",
)
TRAINER = Source(
    "trainer",
    "github.com/kubeflow/trainer/v2",
    "v2.1.0",
    "h1:jRABD9ZYToamNH2atHze3L/VC/v6KCAqUEqsOQOjVTg=",
    "./cmd/trainer-controller-manager",
    "manifests",
    "overlays/manager",
    left_out="../../third-party/jobset",  # JOBSET has it
)
KUEUE = Source(
    "kueue",
    "sigs.k8s.io/kueue",
    "v0.19.2",
    "h1:mPNzr37u0nwI7ikST5QQl5gg6EgtYOAvC9ZbTgywdN8=",
    "./cmd/kueue",
    "config",
    "default",
)

KARPENTER = Source(
    "karpenter",
    "sigs.k8s.io/karpenter",
    "v1.14.0",
    "h1:+SXlqYNb9FIKRpDgPPRnphVmWbrWLw4tgzKezr372Mc=",
    "./kwok",
    "kwok",
    "",
)


def build(source: Source) -> Path:
    """The folder with `manager`, the program, and its manifests. Raises Trouble."""
    if (source.folder / "manager").exists():
        return source.folder
    say(f"building {source.module} {source.version}")
    told = go("mod", "download", "-json", f"{source.module}@{source.version}", cwd=Path("/"))
    found = json.loads(told)
    if found["Sum"] != source.sum:
        raise Trouble(f"{source.module} {source.version} is {found['Sum']}, not {source.sum}")
    module = Path(found["Dir"])
    STORE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=STORE) as made:
        folder = Path(made, "all")
        shutil.copytree(module / source.manifests, folder / source.manifests)
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)  # a module's files are not
        if source.left_out:
            _leave_out(source.left_out, folder / source.manifests / source.kustomization)
        argv = ("-trimpath", "-gcflags=all=-dwarf=false", "-ldflags=-s -w", "-o")
        go("build", *argv, str(folder / "manager"), source.package, cwd=module)
        if source.folder.exists():
            shutil.rmtree(source.folder)
        folder.rename(source.folder)
    return source.folder


def _leave_out(resource: str, kustomization: Path) -> None:
    file = kustomization / "kustomization.yaml"
    lines = file.read_text().splitlines(keepends=True)
    kept = [line for line in lines if resource not in line]
    if len(kept) != len(lines) - 1:
        raise Trouble(f"{file} does not name {resource} once")
    file.write_text("".join(kept))


def go(*argv: str, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    command = shutil.which("go")
    if command is None:
        raise Trouble("the controllers are built by Go 1.26; there is none on the PATH")
    own = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", **(env or {})}
    done = subprocess.run(
        [command, *argv], cwd=cwd, env={**os.environ, **own}, capture_output=True, text=True
    )
    if done.returncode:
        raise Trouble(f"go {' '.join(argv)}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout

"""The images that daemonset/build-images makes: what is in them, and what is not."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import images
from tests.e2e.cluster import settings
from tests.e2e.cluster.settings import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
COMMANDS = {
    "agent": {"lockstep-agent"},
    "central": {"lockstep", "lockstep-launch", "kubectl-lockstep", "kubectl_complete-lockstep"},
}
OWN_MB = {"agent": 40, "central": 190}  # beside the base image
LOGIN = """import sys, yaml, kubernetes, lockstep_scheduler
from central.kube.transport.configuration import load_user_config
config, namespace = load_user_config(sys.argv[1], None)
print(config.authorization(), namespace, hasattr(kubernetes.client, "V1Pod"))
"""
EXEC_KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
    "users": [
        {
            "name": "u",
            "user": {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "/bin/sh",
                    "args": [
                        "-c",
                        """echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "secret"}}'""",
                    ],
                    "interactiveMode": "Never",
                }
            },
        }
    ],
}


def _buildah(*arguments: str) -> str:
    return images.run("buildah", *arguments).strip()


@pytest.fixture(scope="module", params=sorted(COMMANDS))
def built(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """An image's name, and its files."""
    name: str = request.param
    images.build_once()
    container = _buildah("from", "--pull-never", images.tag(name))
    yield name, Path(_buildah("mount", container))
    _buildah("rm", container)


def test_only_commands_that_work_are_there(built: tuple[str, Path]) -> None:
    name, root = built
    programs = {path.name for path in (root / "opt/lockstep/bin").iterdir()}
    assert {each for each in programs if re.search("lockstep", each)} == COMMANDS[name]
    for command in COMMANDS[name] - {"kubectl_complete-lockstep"}:
        done = _inside(root, command, "--help")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("usage: ")


def test_whoever_runs_it_and_where_it_comes_from_is_said(built: tuple[str, Path]) -> None:
    name, _ = built
    config = json.loads(_buildah("inspect", "--type", "image", images.tag(name)))["OCIv1"]["config"]
    assert config.get("User", "") == ("65534:65534" if name == "central" else "")
    labels = {key.rpartition(".")[2]: value for key, value in config["Labels"].items()}
    assert labels["title"] == f"lockstep-{name}"
    assert labels["version"] == images.version()
    assert labels["licenses"] == "Apache-2.0"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    assert labels["revision"] == (head.stdout.strip() or "unknown")


def test_the_list_of_parts_names_every_pinned_package(built: tuple[str, Path]) -> None:
    name, root = built
    parts = json.loads((root / "opt/lockstep/sbom.cdx.json").read_text())["components"]
    listed = {(part["name"].lower().replace("_", "-"), part["version"]) for part in parts}
    pins = (ROOT / f"daemonset/requirements-{name}.txt").read_text()
    pinned = re.findall(r"^([\w.-]+)==([^\s;]+) (?:; (.*) )?\\$", pins, re.MULTILINE)
    here = {(package, version) for package, version, marker in pinned if not marker}
    assert len(here) > 3
    assert here <= listed
    assert ("lockstep-scheduler", images.version()) in listed


def test_nothing_of_the_build_stays(built: tuple[str, Path]) -> None:
    """Neither pip's settings, which may hold a password, nor the tools that built it."""
    name, root = built
    for path in ("etc/pip.conf", "etc/pip-ca.crt", "opt/build", "src"):
        assert not (root / path).exists(), path
    packages = next(root.glob("opt/lockstep/lib/python3*/site-packages"))
    there = {path.name for path in packages.iterdir()}
    assert not there & {"pip", "hatchling", "cyclonedx"}
    assert not there & {"agent", "central", "protos"}
    own_packages = packages / "lockstep_scheduler/packages"
    assert (own_packages / "central/cli").is_dir() == (name == "central")
    assert not (own_packages / "central/standalone").exists()
    own = sum(path.stat().st_size for path in (root / "opt/lockstep").rglob("*") if path.is_file())
    assert own < OWN_MB[name] * 10**6, f"{own / 10**6:.0f} MB"


def test_byte_code_is_there_for_all(built: tuple[str, Path]) -> None:
    """Whoever runs an image cannot write it: without byte code every start would compile everything."""
    name, root = built
    own = next(
        root.glob(f"opt/lockstep/lib/python3*/site-packages/lockstep_scheduler/packages/{name}")
    )
    sources = list(own.rglob("*.py"))
    assert sources
    for source in sources:
        (compiled,) = (source.parent / "__pycache__").glob(f"{source.stem}.cpython-*.pyc")
        assert compiled.read_bytes()[4:8] == b"\x01\0\0\0", "found by hash, and not checked"


def test_the_smaller_kubernetes_package_knows_login_helpers(built: tuple[str, Path]) -> None:
    name, root = built
    if name != "central":
        pytest.skip("the agent never talks to the API server")
    (root / "tmp/config.json").write_text(json.dumps(EXEC_KUBECONFIG))
    done = _inside(root, "python", "-c", LOGIN, "/tmp/config.json")
    assert done.stdout.split() == ["Bearer", "secret", "team", "False"], done.stderr


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_package_exists_for_arm64(name: str, tmp_path: Path) -> None:
    """GB200 machines have such processors. The file with the pinned hash is fetched, not run."""
    pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes")
    machine = ("--only-binary=:all:", "--python-version=3.12", "--implementation=cp")
    platforms = [f"--platform=manylinux{each}_aarch64" for each in ("2014", "_2_28", "_2_17")]
    pins = ("-r", f"daemonset/requirements-{name}.txt", "-d", str(tmp_path))
    done = subprocess.run(
        [*pip, *machine, *platforms, *pins], cwd=ROOT, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr[-1000:]
    assert any("aarch64" in path.name for path in tmp_path.iterdir())


def _inside(root: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    path = "PATH=/opt/lockstep/bin:/usr/local/bin:/usr/bin:/bin"
    who = "--userspec=65534:65534"
    chroot = ["chroot", who, str(root), "/bin/env", "-i", path, "HOME=/tmp", *argv]
    return subprocess.run(
        chroot, env={"PATH": settings.PATH}, capture_output=True, text=True, timeout=120
    )

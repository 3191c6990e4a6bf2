"""One image that stands in for those that the examples name, and carries their names: OpenMPI and
sshd from Debian's packages, a Python, and programs that do what frameworks do to find each other."""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from tests.e2e import image, images
from tests.e2e.cluster.settings import Trouble, say

HERE = Path(__file__).parent / "standins"
PACKAGES = ("openmpi-bin", "libopenmpi-dev", "openssh-server", "openssh-client")
NAMES = (
    "docker.io/volcanosh/example-mpi:0.0.1",
    "docker.io/volcanosh/example-tf:0.0.1",
    "docker.io/volcanosh/horovod-tf-mpi-example:0.0.1",
    "docker.io/volcanosh/edlctr:v1",
    "docker.io/pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime",
    "docker.io/library/python:3.12-slim",
    "docker.io/rayproject/ray:2.40.0",
    "docker.m.daocloud.io/volcanosh/example-mpi:0.0.1",
    "docker.m.daocloud.io/volcanosh/example-tf:0.0.1",
)
PROGRAMS = (
    *("usr/bin/orterun", "usr/bin/orted", "usr/bin/ssh"),
    *("usr/sbin/sshd", "usr/bin/ssh-keygen"),
)
SSHD = "UsePAM no\nPermitRootLogin prohibit-password\nUseDNS no\nHostKey /etc/ssh/host_key\n"
QUIET = """btl_vader_single_copy_mechanism = none
btl = self,tcp,vader
pml = ob1
osc = ^ucx
mca_base_component_show_load_errors = 0
"""


def build(folder: Path) -> Path:
    """The archive."""
    python, variables = images.python("agent")
    packages = _packages(images.STORE)
    made = image.Image(NAMES[0]).layer(python).layer(_mpi(packages, folder)).layer(_programs())
    made.env |= variables
    path = folder / "workloads.tar"
    made.save(path, more=NAMES[1:])
    return path


def _programs() -> bytes:
    layer = image.Layer()
    for path in HERE.rglob("*.py"):
        layer.add(path, f"/app/{path.relative_to(HERE)}")
    scripts = "/opt/tf-benchmarks/scripts/tf_cnn_benchmarks"
    layer.add(HERE / "tf_cnn_benchmarks.py", f"{scripts}/tf_cnn_benchmarks.py")
    layer.add(HERE / "tensorflow_mnist_lm.py", "/examples/tensorflow_mnist_lm.py")
    for name, script in (("paddle_k8s", "paddle_k8s.py"), ("ray", "ray/start.py")):
        text = f'#!/bin/sh\nexec python /app/{script} "$@"\n'
        layer.files[f"/usr/local/bin/{name}"] = (text.encode(), 0o755)
    return layer.tar()


def _packages(store: Path) -> Path:
    """Debian's packages and what they need beyond this machine's own, unpacked and not installed."""
    told = json.dumps([PACKAGES, platform.machine(), _release()])
    folder = store / f"mpi-{hashlib.sha256(told.encode()).hexdigest()[:12]}"
    if (folder / "complete").exists():
        return folder / "root"
    for old in store.glob("mpi-*"):
        shutil.rmtree(old)
    (folder / "debs").mkdir(parents=True)
    wanted = ("--no-install-recommends", "--reinstall", *PACKAGES)
    listing = _run("apt-get", "install", "-qq", "--print-uris", *wanted, cwd=folder)
    names = {line.split()[1].split("_")[0] for line in listing.splitlines() if line.startswith("'")}
    _run("apt-get", "download", "-qq", *sorted(names), cwd=folder / "debs")
    for archive in sorted((folder / "debs").glob("*.deb")):
        _run("dpkg", "-x", str(archive), str(folder / "root"), cwd=folder)
    shutil.rmtree(folder / "debs")
    (folder / "complete").touch()
    say("OpenMPI and sshd are unpacked")
    return folder / "root"


def _release() -> str:
    return Path("/etc/os-release").read_text()


def _run(*argv: str, cwd: Path) -> str:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise Trouble(f"{' '.join(argv[:3])}: {done.stderr.strip()[-500:]}")
    return done.stdout


def _mpi(root: Path, staging: Path) -> bytes:
    hello, key = staging / "mpi_hello_world", staging / "host_key"
    library = next(root.glob("usr/lib/*/openmpi/include")).parents[1]
    source = str(HERE / "mpi_hello_world.c")
    _run(
        *("gcc", "-O1", "-o", str(hello), source, f"-I{library}/openmpi/include"),
        *(f"-L{library}", "-l:libmpi.so.40", "-Wl,--unresolved-symbols=ignore-in-shared-libs"),
        cwd=staging,
    )
    if not key.exists():
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key), cwd=staging)
    layer = image.Layer()
    programs = [root / name for name in PROGRAMS]
    for program in programs:
        layer.add(program, f"/{program.relative_to(root)}")
    layer.links |= {"/usr/bin/mpiexec": "orterun", "/usr/bin/mpirun": "orterun"}
    layer.add(hello, "/usr/bin/mpi_hello_world")
    for name in ("etc/openmpi", "usr/share/openmpi"):
        layer.add(root / name, f"/{name}")
    for folder in (library / "openmpi/lib/openmpi3", library / "pmix2"):
        layer.add(folder, _inside(folder, root))
    plugins = [*library.glob("openmpi/lib/openmpi3/*.so"), *library.glob("pmix2/lib/**/*.so*")]
    for found in _libraries([hello, *programs, *plugins], library):
        path = Path(found)
        layer.add(path, _inside(path, root) if path.is_relative_to(root) else found)
    layer.text("/etc/openmpi/openmpi-mca-params.conf", QUIET)
    layer.text("/etc/ssh/sshd_config", SSHD)
    layer.files["/etc/ssh/host_key"] = (key.read_bytes(), 0o600)
    layer.text(
        "/etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n"
        "nobody:x:65534:65534:nobody:/:/bin/false\n",
    )
    layer.folders |= {"/home": 0o755, "/run/sshd": 0o755}
    layer.links["/var/run"] = "/run"
    return layer.tar()


def _inside(path: Path, root: Path) -> str:
    return f"/{path.relative_to(root)}"


def _libraries(programs: list[Path], library: Path) -> list[str]:
    """What these are linked with; the unpacked ones' own first."""
    env = {**os.environ, "LD_LIBRARY_PATH": f"{library}:{library}/openmpi/lib"}
    found: set[str] = set()
    for program in programs:
        listing = subprocess.run(["ldd", program], capture_output=True, text=True, env=env).stdout
        found.update(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listing, re.MULTILINE))
    return sorted(found)

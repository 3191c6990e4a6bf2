"""Where a cluster keeps things, which addresses it uses, which programs it runs.

Several clusters fit on one machine: K8S_CLUSTER (0 to 9; by default the number of pytest-xdist's worker) gives each a
folder, a network and a cgroup of its own."""

import ipaddress
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]  # of the repository
PROGRAMS = HERE.parent / "programs"
BUILDER = PROGRAMS / "kubernetes-from-modules.sh"
KUBE = os.environ.get("KUBE") or "1.37"  # a folder of programs/kubernetes
CACHE = Path(
    os.environ.get("K8S_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", f"kubernetes-{KUBE}")
).expanduser()
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
CLUSTER = int(os.environ.get("K8S_CLUSTER") or _WORKER)
NAME = f"k8s-e2e-{CLUSTER}"  # the host's network interface, and the cgroup of it all
STATE = Path(os.environ.get("K8S_STATE") or f"/var/tmp/{NAME}")
ASSETS = os.environ.get("KUBEBUILDER_ASSETS", "")

MACHINES = ipaddress.IPv4Network(f"10.89.{CLUSTER}.0/24")
PODS = ipaddress.IPv4Network(f"10.{244 + CLUSTER}.0.0/16")
SERVICES = ipaddress.IPv4Network(f"10.{96 + CLUSTER}.0.0/16")
CONTROL_PLANE = "control-plane"
CONTROL_PLANE_IP = str(MACHINES[1])
HOST_IP = str(MACHINES[254])
API_SERVER = f"https://{CONTROL_PLANE_IP}:6443"
API_SERVICE_IP, DNS_SERVICE_IP = str(SERVICES[1]), str(SERVICES[10])
CLUSTER_DOMAIN = "cluster.local"
PAUSE_IMAGE = "local/pause:1"

START = time.monotonic()
# mount, ip and their kind, also where the caller's PATH has no sbin; and the unpacked tools,
# which containerd looks for (runc, its shim) and kube-proxy (conntrack).
_HERE_PATH = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
_FOLDERS = (CACHE / "bin", CACHE / "debian/usr/bin", CACHE / "debian/usr/sbin")
PATH = ":".join(map(str, (*_FOLDERS, _HERE_PATH, "/usr/sbin", "/sbin")))


class Trouble(Exception):
    """What keeps the cluster from being as asked, in words for the person who asked."""


def program(name: str) -> Path:
    """A program of the cluster: KUBEBUILDER_ASSETS' where that has it, else the cache's."""
    for folder in (*map(Path, filter(None, [ASSETS])), *_FOLDERS):
        if os.access(found := folder / name, os.X_OK):
            return found
    return CACHE / "bin" / name


def versions() -> str:
    """Of the API server, the kubelet and the container runtime."""
    found = []
    for name in ("kube-apiserver", "kubelet", "containerd"):
        if not program(name).exists():
            continue
        done = subprocess.run([program(name), "--version"], capture_output=True, text=True)
        words = [word for word in done.stdout.split() if word.lstrip("v")[:1].isdigit()]
        found.append(f"{name} {words[0] if words else 'of an unknown version'}")
    return ", ".join(found)


def say(text: str) -> None:
    print(f"[{time.monotonic() - START:5.1f}s] {text}", file=sys.stderr, flush=True)


def run(*argv: object, stdin: str | None = None) -> str:
    """Runs a program; what it prints is shown only when it fails."""
    done = subprocess.run(
        [str(a) for a in argv],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PATH": PATH},
    )
    if done.returncode:
        raise Trouble(f"{' '.join(map(str, argv))}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def wait(what: str, condition: Callable[[], object], seconds: float | None = None) -> None:
    seconds = seconds or int(os.environ.get("K8S_TIMEOUT", "120"))
    deadline = time.monotonic() + seconds
    while True:
        problem: object = "not yet"
        try:
            if condition():
                return
        except (OSError, Trouble, KeyError) as error:
            problem = error
        if time.monotonic() > deadline:
            raise Trouble(f"waited {seconds} s for {what}: {problem}")
        time.sleep(0.1)

"""A real API server and nothing else: etcd in memory and kube-apiserver on loopback ports. No root."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from central.kube.transport.http_client import Client, Unreachable, connect
from tests.e2e.cluster.settings import program

TOKEN = "benchmark"
FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Plane:
    def __init__(self, folder: Path, client: Client, kubeconfig: Path) -> None:
        self.folder = folder
        self.client = client
        self.kubeconfig = kubeconfig


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(*flags: str) -> Iterator[Plane]:
    """flags: further ones of kube-apiserver."""
    folder = Path(tempfile.mkdtemp(prefix="lockstep-bench-", dir=FAST))
    with (folder / "log").open("wb") as log:
        processes: list[subprocess.Popen[bytes]] = []
        try:
            etcd, peer, api = free_port(), free_port(), free_port()
            processes.append(_etcd(folder, etcd, peer, log.fileno()))
            processes.append(_api_server(folder, etcd, api, log.fileno(), flags))
            kubeconfig = _kubeconfig(folder, api)
            client = connect(str(kubeconfig))
            _wait(client, processes, folder)
            yield Plane(folder, client, kubeconfig)
            client.close()
        finally:
            for process in reversed(processes):
                process.kill()
                process.wait()
            shutil.rmtree(folder, ignore_errors=True)


def _etcd(folder: Path, port: int, peer: int, log: int) -> subprocess.Popen[bytes]:
    url, between = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    argv = [
        str(program("etcd")),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={between}",
        "--log-level=error",
    ]
    return subprocess.Popen(argv, stdout=log, stderr=log)


def _api_server(
    folder: Path, etcd: int, port: int, log: int, flags: Sequence[str]
) -> subprocess.Popen[bytes]:
    (folder / "tokens").write_text(f'{TOKEN},admin,1,"system:masters"\n')
    key = folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    argv = [
        str(program("kube-apiserver")),
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={folder / 'tokens'}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        # Nobody makes ServiceAccounts or unlocks nodes here.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
        "--enable-priority-and-fairness=false",
        *flags,
    ]
    return subprocess.Popen(argv, stdout=log, stderr=log)


def _kubeconfig(folder: Path, port: int) -> Path:
    path = folder / "kubeconfig"
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "bench",
                "clusters": [{"name": "bench", "cluster": cluster}],
                "users": [{"name": "admin", "user": {"token": TOKEN}}],
                "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "admin"}}],
            }
        )
    )
    return path


def _wait(client: Client, processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if client.request("GET", "/readyz").status == 200:
                return
        except Unreachable:
            pass
        if any(process.poll() is not None for process in processes):
            break
        time.sleep(0.1)
    raise SystemExit("the API server did not start:\n" + (folder / "log").read_text()[-2000:])

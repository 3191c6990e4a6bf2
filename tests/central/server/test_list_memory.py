"""Memory of a real scheduler process that lists, and then watches, pods of a mebibyte: it does not grow with their
size."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from tests.central.kube.api_fixtures import kubeconfig
from tests.fakes.eventually import eventually

pytestmark = pytest.mark.slow

PODS, PODS_PATH = 150, "/api/v1/pods"
PAD = "x" * (1 << 20)
PEAK_MIB = 250  # 150 MiB were measured; 874 MiB before pages were cut by bytes, with 200 such pods


def pod(number: int, version: int) -> bytes:
    """Large in a field that nobody reads."""
    container = {"name": "main", "image": "i", "env": [{"name": "E", "value": PAD}]}
    meta = {"name": f"p-{number}", "namespace": "ns", "uid": f"u-{number}"}
    return json.dumps(
        {
            "metadata": {**meta, "resourceVersion": str(version)},
            "spec": {"schedulerName": "lockstep", "containers": [container]},
            "status": {"phase": "Pending"},
        }
    ).encode()


class Api(BaseHTTPRequestHandler):
    """Serves lists in pages and watches, as an API server does; makes each pod as it sends it."""

    protocol_version = "HTTP/1.1"
    watched = Event()  # all pods were sent as events, too
    over = Event()

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        url = urlparse(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        pods = PODS if url.path == PODS_PATH and "labelSelector" not in query else 0
        try:
            if "watch" in query:
                self._watch(pods)
            elif "limit" in query:
                self._list(pods, int(query.get("continue", "0")), int(query["limit"]))
            else:
                self._refuse(404)
        except OSError:  # the client reads no further
            self.close_connection = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._refuse(403)

    do_PATCH = do_PUT = do_DELETE = do_POST  # noqa: N815 - its names there

    def _refuse(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _list(self, count: int, begin: int, limit: int) -> None:
        end = min(count, begin + limit)
        meta = {"resourceVersion": "5", "continue": str(end) if end < count else ""}
        self._begin()
        self._chunk(b'{"kind":"List","metadata":%b,"items":[' % json.dumps(meta).encode())
        for number in range(begin, end):
            self._chunk((b"," if number > begin else b"") + pod(number, 5))
        self._chunk(b"]}")
        self._chunk(b"")

    def _watch(self, count: int) -> None:
        self._begin()
        for number in range(count):
            self._chunk(b'{"type":"MODIFIED","object":%b}\n' % pod(number, 6 + number))
        if count:
            self.watched.set()
        self.over.wait()


@contextmanager
def scheduler(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        config = kubeconfig(folder, f"http://127.0.0.1:{server.server_address[1]}")
        command = [sys.executable, "-m", "central", "central", "--kubeconfig", config]
        command += ["--tls-dir", str(folder / "tls"), "--listen", "127.0.0.1:0"]
        log = folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, "--metrics-listen", "127.0.0.1:0"], stdout=out, stderr=out
            )
        try:
            yield process, log
        finally:
            process.kill()
            process.wait()
            Api.over.set()
            server.shutdown()


def test_memory_does_not_grow_with_the_size_of_pods(tmp_path: Path) -> None:
    with scheduler(tmp_path) as (process, log):
        eventually(lambda: "initial sync complete" in log.read_text(), 120.0)
        eventually(Api.watched.is_set, 120.0)
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak = re.search(r"^VmHWM: +(\d+) kB$", status.replace("\t", " "), re.MULTILINE)
    assert peak is not None
    assert int(peak[1]) >> 10 < PEAK_MIB

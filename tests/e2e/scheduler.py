"""kube-scheduler itself, asked which nodes pass its filters: it calls us as its extender with the nodes
that are left, and we turn all of them down, so that nothing is ever bound."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.benchmarks.plane import Plane, free_port
from tests.e2e.cluster.settings import program

Json = dict[str, Any]
Answers = dict[str, list[set[str]]]  # by pod, each time it was asked


@contextmanager
def asked(plane: Plane) -> Iterator[Answers]:
    """kube-scheduler runs while the block lasts."""
    answers: Answers = {}
    server = _Extender(("127.0.0.1", 0), _Handler)
    server.answers = answers
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        with _scheduler(plane, server.server_address[1]):
            yield answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Extender(ThreadingHTTPServer):
    daemon_threads = True
    answers: Answers


class _Handler(BaseHTTPRequestHandler):
    server: _Extender
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = {field.lower(): value for field, value in told.items()}  # releases spell them apart
        nodes = asked.get("nodenames") or []
        self.server.answers.setdefault(asked["pod"]["metadata"]["uid"], []).append(set(nodes))
        body = json.dumps({"nodenames": [], "failedNodes": dict.fromkeys(nodes, "asked")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _scheduler(plane: Plane, extender: int) -> Iterator[None]:
    configuration = plane.folder / "asked.json"
    for version in ("v1", "v1beta3", "v1beta1"):  # the newest that this build takes
        configuration.write_text(
            json.dumps(
                {
                    "apiVersion": f"kubescheduler.config.k8s.io/{version}",
                    "kind": "KubeSchedulerConfiguration",
                    "leaderElection": {"leaderElect": False},
                    "percentageOfNodesToScore": 100,
                    "clientConnection": {
                        "kubeconfig": str(plane.kubeconfig),
                        "qps": 1e6,
                        "burst": 1000000,
                    },
                    "extenders": [
                        {
                            "urlPrefix": f"http://127.0.0.1:{extender}",
                            "filterVerb": "filter",
                            "nodeCacheCapable": True,
                        }
                    ],
                }
            )
        )
        argv = [str(program("kube-scheduler")), f"--config={configuration}"]
        argv += [f"--secure-port={free_port()}", f"--cert-dir={plane.folder / 'asked'}"]
        argv += [f"--authentication-kubeconfig={plane.kubeconfig}"]
        argv += [f"--authorization-kubeconfig={plane.kubeconfig}"]
        with (plane.folder / "asked.log").open("wb") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            break
    else:
        raise AssertionError((plane.folder / "asked.log").read_text()[-2000:])
    try:
        yield
    finally:
        process.kill()
        process.wait()

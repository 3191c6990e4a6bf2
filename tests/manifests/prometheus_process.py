"""A real Prometheus on the loopback, with its data in a folder. Tests skip where there is none (Debian: prometheus).

with Prometheus.started(tmp_path, [Target("agent", "127.0.0.1:9401", {"node": "n0"})], rules) as prometheus:
    prometheus.query("sum(lockstep_gpus)")      # {(): 32.0}
"""

import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson
import pytest
import yaml

from central.standalone.local_cluster import free_port

EVERY_S = 1  # between two scrapes
PATIENCE_S = 30.0
Labels = frozenset[tuple[str, str]]


class Target(NamedTuple):
    """labels: that the PodMonitor would add."""

    job: str
    address: str
    labels: Mapping[str, str] = {}


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    @classmethod
    @contextmanager
    def started(cls, folder: Path, targets: Sequence[Target]) -> Iterator[Self]:
        program = shutil.which("prometheus")
        if program is None:
            pytest.skip("there is no prometheus (Debian: apt install prometheus)")
        config = folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump(_config(targets)))
        port = free_port()
        command = [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
        with (folder / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            made = cls(port)
            made._wait_until_ready(process, folder / "prometheus.log")
            yield made
        finally:
            process.kill()
            process.wait()

    def query(self, expression: str) -> dict[Labels, float]:
        """The value of each series now, by its labels without the name."""
        return {
            frozenset((key, value) for key, value in each["metric"].items() if key != "__name__"): (
                float(each["value"][1])
            )
            for each in self.vector(expression)
        }

    def vector(self, expression: str) -> list[Any]:
        """The series as the API has them. Asserts that the query is valid."""
        answer = self._get("/api/v1/query", query=expression)
        assert answer["status"] == "success", (expression, answer)
        found: list[Any] = answer["data"]["result"]
        return found

    def label_values(self, metric: str, label: str) -> set[str]:
        """What Grafana's label_values(metric, label) lists."""
        answer = self._get(f"/api/v1/label/{label}/values", **{"match[]": metric})
        return set(answer["data"])

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"{self._url}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as reply:
                return orjson.loads(reply.read())
        except urllib.error.HTTPError as error:
            return orjson.loads(error.read())

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                urllib.request.urlopen(f"{self._url}/-/ready", timeout=5).close()
                return
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)


def _config(targets: Sequence[Target]) -> dict[str, Any]:
    """As the PodMonitor has it: the labels of the target, and honor_labels."""
    jobs: dict[str, list[dict[str, Any]]] = {}
    for target in targets:
        static = {"targets": [target.address], "labels": dict(target.labels)}
        jobs.setdefault(target.job, []).append(static)
    return {
        "global": {"scrape_interval": f"{EVERY_S}s", "scrape_timeout": f"{EVERY_S}s"},
        "scrape_configs": [
            {"job_name": job, "honor_labels": True, "static_configs": statics}
            for job, statics in jobs.items()
        ],
    }

"""Traces of real scheduler processes beside a real collector: one that is well, one that is away, and schedulers that
follow each other."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES, free_port
from protos.names import BLOCK, RACK
from tests.central.local_clusters import started
from tests.central.server.test_metrics_process import samples
from tests.central.server.test_scheduler_process import GROUPS, confirmed, reported, submit
from tests.central.server.tracing.otlp_collector import Collector, attributes, collector
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PATIENCE_S = 120.0
LEADS = ("--leader-elect", "--lease-duration=3")


@pytest.fixture
def there() -> Iterator[Collector]:
    with collector() as made:
        yield made


def nodes(count: int) -> list[HollowNode]:
    return [
        HollowNode(f"n{at}", {RACK: "r", BLOCK: "b"}, CAPTURES / "dgx-a100-8.json")
        for at in range(count)
    ]


def uid(box: FaultyCluster, name: str) -> str:
    return str(box.client.get(f"{GROUPS}/{name}")["metadata"]["uid"])


def lacks_gpus(box: FaultyCluster, name: str) -> bool:
    """Whether the scheduler that runs now has tried the gang, and said so: any other reason is of before."""
    answer = box.explain(name)
    return answer is not None and "GPU" in answer.reason


def test_a_gang_that_waits_for_another_scheduler(there: Collector) -> None:
    """The first scheduler says why it waits; it is killed; the next one starts the gang, in the same trace."""
    flags = [f"--otlp-endpoint={there.url}", "--agents-wait=60"]
    with started(nodes(2), flags=flags) as box:
        box.wait("the agents", lambda: reported(box))
        submit(box, "first", 1, 8)
        root = box.wait("its trace", lambda: there.named("first").get("gang"), PATIENCE_S)
        found = there.named("first")
        assert {"placement", "binding", "startup", "gang"} <= {*found}
        assert root.trace_id.hex() == uid(box, "first").replace("-", "")
        assert {span.trace_id for span in found.values()} == {root.trace_id}
        stages = [found[name] for name in ("placement", "binding", "startup")]
        assert {span.parent_span_id for span in stages} == {root.span_id}
        ends = [span.end_time_unix_nano for span in stages]
        assert ends == sorted(ends)
        assert ends[-1] == root.end_time_unix_nano
        said = attributes(found["binding"])
        assert said["k8s.node.name"] in ("n0", "n1")
        assert said["lockstep.queue"] == "default"
        submit(box, "second", 2, 8)
        box.wait("its reason", lambda: lacks_gpus(box, "second"), PATIENCE_S)
        box.kill_scheduler()
        box.start_scheduler()
        box.wait("the agents", lambda: reported(box), PATIENCE_S)
        box.wait("its reason again", lambda: lacks_gpus(box, "second"), PATIENCE_S)
        assert box.client.request("DELETE", "/api/v1/namespaces/default/pods/first-0").ok
        again = box.wait("its trace", lambda: there.named("second").get("gang"), PATIENCE_S)
        assert again.trace_id.hex() == uid(box, "second").replace("-", "")
        waited = there.named("second")["placement"]
        reasons = [event.attributes[0].value.string_value for event in waited.events]
        assert any("GPU" in reason for reason in reasons), reasons
        assert {each["service.name"] for each in there.resources} == {"lockstep-central"}


def test_a_standby_goes_on_with_the_trace(there: Collector, tmp_path: Path) -> None:
    flags = [f"--otlp-endpoint={there.url}", *LEADS]
    with started(nodes(1), flags=flags) as box:
        box.wait("the agents", lambda: reported(box))
        log = tmp_path / "standby.log"
        command = [sys.executable, "-m", "central", "central", *LEADS, "--tls-dir", str(box.tls)]
        command += ["--kubeconfig", str(box.kubeconfig), "--listen", f"127.0.0.1:{free_port()}"]
        environ = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": there.url, "POD_NAME": ""}
        with log.open("wb") as output:
            standby = subprocess.Popen(command, stdout=output, stderr=output, env=environ)
        try:
            box.wait("the standby", lambda: "standing by" in log.read_text(), PATIENCE_S)
            submit(box, "big", 1, 8)
            box.wait("big's trace", lambda: there.named("big").get("gang"), PATIENCE_S)
            submit(box, "later", 1, 8)
            box.wait("its reason", lambda: box.explain("later"), PATIENCE_S)
            box.kill_scheduler()
            box.wait("the leader", lambda: "is the leader" in log.read_text(), PATIENCE_S)
            assert box.client.request("DELETE", "/api/v1/namespaces/default/pods/big-0").ok
            root = box.wait("its trace", lambda: there.named("later").get("gang"), PATIENCE_S)
            assert root.trace_id.hex() == uid(box, "later").replace("-", "")
            roots = [span for span in there.spans if span.name == "gang"]
            assert len({span.span_id for span in roots}) == len(roots) == 2
        finally:
            standby.terminate()
            standby.wait(30)


def test_gangs_start_while_the_collector_is_away() -> None:
    """Nothing listens at first, then something that says 500 to everything."""
    metrics, port = free_port(), free_port()
    flags = [f"--otlp-endpoint=http://127.0.0.1:{port}", f"--metrics-listen=127.0.0.1:{metrics}"]
    with started(nodes(2), flags=flags) as box:
        box.wait("the agents", lambda: reported(box))
        submit(box, "one", 1, 8)
        box.wait("one", lambda: confirmed(box, "one"), PATIENCE_S)
        with collector(port) as there:
            there.statuses = [500] * 1000
            submit(box, "two", 1, 8)
            box.wait("two", lambda: confirmed(box, "two"), PATIENCE_S)
            dropped = ("lockstep_trace_spans_dropped_total", "refused")
            box.wait("the metric", lambda: samples(metrics).get(dropped, 0) >= 1, PATIENCE_S)
            assert there.spans == []
            assert samples(metrics)["lockstep_trace_spans_sent_total",] == 0


@pytest.mark.parametrize(
    ("given", "why"),
    [("collector:4318", "is not a URL of a collector"), ("http://u:hidden@c", "holds a password")],
)
def test_a_wrong_url_is_a_wrong_argument(given: str, why: str) -> None:
    command = [sys.executable, "-m", "central", "central", "--otlp-endpoint", given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert why in done.stderr
    assert "hidden" not in done.stderr

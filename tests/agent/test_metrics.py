"""/metrics, /healthz and /readyz of an agent beside a hollow kubelet."""

import json
import logging
import math
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.kubelet.latency import Latency
from agent.machine.facts import Unusable
from agent.service import Agent
from protos.common import logs
from protos.names import GPU
from protos.topology import Grant, RdmaLimit, RdmaUse
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, node_box, pod

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def box() -> Iterator[NodeBox]:
    with node_box() as made:
        made.configure(metrics_listen="127.0.0.1:0")
        made.start()
        yield made


def get(box: NodeBox, path: str) -> tuple[int, str]:
    probes = box.agent._probes
    assert probes is not None
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{probes.port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(box: NodeBox) -> Samples:
    status, text = get(box, "/metrics")
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(box: NodeBox, name: str, **labels: str) -> float:
    found = [
        amount
        for (each, own), amount in samples(box).items()
        if each == name and labels.items() <= dict(own).items()
    ]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_memory_that_containers_may_lock(box: NodeBox) -> None:
    name, made = "lockstep_runtime_memlock_bytes", machines.machine()
    assert not [each for each, _ in samples(box) if each == name], "nobody knows"
    for told, shown in ((8 << 20, 8 << 20), (-1, math.inf)):
        box.change(replace(made, host=replace(made.host, memlock=told)))
        eventually(partial(lambda told: box.agent.node.state.topology.memlock == told, told))
        assert value(box, name) == shown


def test_gpus_grants_and_the_agent_itself(box: NodeBox) -> None:
    assert value(box, "lockstep_gpu_healthy", gpu="3") == 1
    assert value(box, "lockstep_gpu_memory_bytes", gpu="3") == 80 << 30
    assert value(box, "lockstep_gpu_nvlinks_active", gpu="0") == 18
    assert value(box, "lockstep_agent_registered", resource=GPU) == 1
    box.kubelet.add_pod(pod("a", 2))
    eventually(lambda: box.agent.node.state.grants)
    assert value(box, "lockstep_grant_devices", pod="a", container="c0") == 2
    assert value(box, "lockstep_agent_allocate_seconds_count", resource=GPU) == 1
    assert value(box, "process_resident_memory_bytes") > 1 << 20


def test_an_unfit_gpu_and_its_class(box: NodeBox) -> None:
    box.agent._monitor.on_event(machines.uuid(5), 79)
    eventually(lambda: value(box, "lockstep_gpu_healthy", gpu="5") == 0)
    assert value(box, "lockstep_gpu_unfit", gpu="5", **{"class": "xid"}) == 1
    assert value(box, "lockstep_gpu_xid_total", gpu="5", xid="79") == 1


def test_what_pods_use_of_network_cards(box: NodeBox) -> None:
    limit = RdmaLimit(64, -1)
    uses = (
        RdmaUse("team", "a", "mlx5_0", RdmaLimit(3, 41), limit, 7),
        RdmaUse("team", "b", "mlx5_0", RdmaLimit(1, 2), limit),
    )
    box.agent.node.set_rdma_use(uses)
    assert value(box, "lockstep_grant_rdma_used", pod="a", hca="mlx5_0", kind="objects") == 41
    assert value(box, "lockstep_grant_rdma_limit", pod="a", kind="handles") == 64
    assert value(box, "lockstep_grant_rdma_failures_total", pod="a") == 7
    told = {
        (name, dict(labels).get("pod"), dict(labels).get("kind")) for name, labels in samples(box)
    }
    assert ("lockstep_grant_rdma_limit", "a", "objects") not in told, "no limit"
    assert ("lockstep_grant_rdma_failures_total", "b", None) not in told, "the kernel does not tell"


def test_hostile_names_stay_inside_their_labels(box: NodeBox) -> None:
    name = 'x"} 1\nlockstep_gpu_healthy{gpu="0"} 0\n\\'
    grant = Grant("team", "p", name, GPU, (machines.uuid(1),))
    box.agent._stop.set()  # otherwise the kubelet's list would replace it
    box.agent._grants.stop()
    for thread in box.agent._threads:
        if thread.name == "grants":
            thread.join(60)
    box.agent.node.set_grants((grant,))
    assert value(box, "lockstep_grant_devices", container=name) == 1
    assert value(box, "lockstep_gpu_healthy", gpu="0") == 1


def test_the_probes_say_what_is_wrong(box: NodeBox) -> None:
    assert get(box, "/healthz") == (200, "ok\n")
    eventually(
        lambda: get(box, "/readyz") == (200, "ok\n"), 15
    )  # each resource registers by itself
    assert get(box, "/else")[0] == 404
    box.kubelet.stop()
    said = f"not registered with the kubelet: {GPU}"
    eventually(lambda: get(box, "/readyz")[0] == 503 and said in get(box, "/readyz")[1])
    assert get(box, "/healthz")[0] == 200, "a kubelet that is away is no reason to start again"


def test_a_client_that_says_nothing_holds_nobody_up(box: NodeBox) -> None:
    probes = box.agent._probes
    assert probes is not None
    silent = [socket.create_connection(("127.0.0.1", probes.port)) for _ in range(4)]
    try:
        assert get(box, "/healthz")[0] == 200
    finally:
        for each in silent:
            each.close()


def test_an_address_that_is_taken_is_one_sentence() -> None:
    with node_box() as box, socket.create_server(("127.0.0.1", 0)) as taken:
        box.configure(metrics_listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(Unusable, match=r"--metrics-listen 127\.0\.0\.1:\d+: .*in use"):
            Agent(box.settings).start()


def test_latency_counts_up_to_each_size() -> None:
    latency = Latency()
    for seconds in (0.0005, 0.02, 0.02, 7.0):
        latency.add(seconds)
    assert dict(latency.buckets()) == {
        **{"0.001": 1, "0.005": 1, "0.01": 1, "0.05": 3, "0.1": 3, "0.5": 3, "1.0": 3},
        "+Inf": 4,
    }


def test_json_lines_hold_whatever_is_said() -> None:
    record = logging.LogRecord("a.b", logging.WARNING, "", 1, "%s\n{", ('"x"',), None)
    line = logs.Json().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["level"], told["logger"], told["message"]) == ("warning", "a.b", '"x"\n{')

"""The reporter and a scheduler behind TLS, with and without faults."""

import logging
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.backoff import Backoff
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.reporter import Reporter, SchedulerEndpoint
from protos import wire
from protos.stubs import fleet_pb2 as pb
from tests.agent.health.test_gpu_health import without
from tests.fakes import machines
from tests.fakes.cable import Cable
from tests.fakes.eventually import eventually
from tests.fakes.fake_scheduler import FakeScheduler
from tests.fakes.nodebox import NodeBox, gpus, intent, node_box, pod
from tests.own_memory import own_bytes


@pytest.fixture
def fleet() -> Iterator[FakeScheduler]:
    with tempfile.TemporaryDirectory(prefix="ls-") as name:
        box = FakeScheduler(Path(name))
        box.start()
        yield box
        box.stop()


@pytest.fixture
def box(fleet: FakeScheduler) -> Iterator[NodeBox]:
    with node_box() as made:
        made.configure(server=fleet.address, ca_file=fleet.ca_file, token_file=fleet.token_file)
        yield made


def full(fleet: FakeScheduler) -> int:
    return sum(not report.heartbeat for report in fleet.reports)


def test_reports_on_change_and_a_heartbeat_in_between(fleet: FakeScheduler, box: NodeBox) -> None:
    box.start()
    eventually(lambda: len(fleet.reports) >= 4)
    first = next(report for report in fleet.reports if not report.heartbeat)
    assert first.node == "node-1"
    assert first.boot_id == box.agent.node.boot_id
    assert not first.heartbeat
    assert wire.from_topology(first.topology) == box.agent.node.state.topology
    assert fleet.reports[-1].heartbeat
    assert not fleet.reports[-1].HasField("topology")

    box.kubelet.add_pod(pod("a", 2))
    eventually(lambda: fleet.reports[-1].generation > first.generation)
    told = next(report for report in fleet.reports if report.grants)
    assert wire.from_grants(told.grants) == (intent("a", [0, 1]),)
    assert not told.heartbeat
    assert not told.HasField("topology"), "it has not changed"
    assert told.topology_of == first.generation

    box.change(without(7))
    eventually(lambda: any(not gpu.healthy for r in fleet.reports for gpu in r.topology.gpus))


def test_the_first_report_knows_who_holds_what(fleet: FakeScheduler, box: NodeBox) -> None:
    """The report of a starting agent must not look like a free node."""
    box.start()
    box.kubelet.add_pod(pod("a", 2))
    box.restart_agent()
    boot = box.agent.node.boot_id

    def first() -> pb.NodeReport | None:
        new = (report for report in fleet.reports if report.boot_id == boot)
        return next((report for report in new if not report.heartbeat), None)

    eventually(lambda: first() is not None)
    assert (report := first()) is not None
    assert wire.from_grants(report.grants) == (intent("a", [0, 1]),)


def test_plans_arrive_and_are_carried_out(fleet: FakeScheduler, box: NodeBox) -> None:
    box.start()
    fleet.plan(intent("a", [6, 1]), intent("b", [3]))
    eventually(lambda: len(box.agent.node.state.intents) == 2)
    assert gpus(box.kubelet.add_pod(pod("b", 1))) == [3]
    assert gpus(box.kubelet.add_pod(pod("a", 2))) == [1, 6]
    fleet.plan()
    eventually(lambda: box.agent.node.state.intents == ())


def test_the_scheduler_that_forgot_is_told_all(fleet: FakeScheduler, box: NodeBox) -> None:
    box.start()
    eventually(lambda: fleet.reports and fleet.reports[-1].heartbeat)
    before = full(fleet)
    fleet.forgets = True
    eventually(lambda: full(fleet) >= before + 2)


def test_a_scheduler_that_is_older(fleet: FakeScheduler, box: NodeBox) -> None:
    """An older scheduler rejects reports without the topology and then gets full ones."""
    fleet.old = True
    box.start()
    eventually(lambda: full(fleet))
    box.kubelet.add_pod(pod("a", 2))
    eventually(lambda: any(r.grants and r.HasField("topology") for r in fleet.reports))


def test_the_scheduler_goes_and_comes_back(
    fleet: FakeScheduler, box: NodeBox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    box.start()
    fleet.plan(intent("a", [6, 7]))
    eventually(lambda: box.agent.node.state.intents)
    fleet.stop()
    eventually(lambda: "is unreachable" in caplog.text)
    assert gpus(box.kubelet.add_pod(pod("a", 2))) == [6, 7]  # the plan stays valid
    box.kubelet.restart()
    box.wait_for(8)
    assert gpus(box.kubelet.add_pod(pod("b", 4))) == [0, 1, 2, 3]

    fleet.reports.clear()
    fleet.renew()  # with a new CA
    fleet.plan(intent("c", [4, 5]))
    fleet.start()
    eventually(lambda: any(len(report.grants) == 2 for report in fleet.reports))
    eventually(lambda: box.agent.node.state.intents == (intent("c", [4, 5]),))
    away = [r for r in caplog.records if r.name == "agent.reporter" and "unreachable" in r.message]
    assert len(away) <= 6, [record.message for record in away]  # states, not attempts


def test_a_ca_that_is_not_there_yet(
    fleet: FakeScheduler, box: NodeBox, caplog: pytest.LogCaptureFixture
) -> None:
    ca = fleet.ca_file.rename(fleet.ca_file.with_name("later"))
    box.start()
    eventually(lambda: "ca.crt does not exist yet: the scheduler's CA certificate" in caplog.text)
    assert gpus(box.kubelet.add_pod(pod("a", 2))) == [0, 1]
    assert not fleet.reports
    ca.rename(fleet.ca_file)
    eventually(lambda: fleet.reports)
    assert caplog.text.count("the scheduler's CA certificate (--ca-file); retrying") == 1


def test_a_token_that_is_wrong_or_missing_and_then_right(
    fleet: FakeScheduler, box: NodeBox, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.token_file.write_text("a stranger's")
    box.start()
    eventually(lambda: "rejects this agent: the token is not valid" in caplog.text)
    fleet.token_file.unlink()
    eventually(lambda: "the ServiceAccount token (--token-file)" in caplog.text)
    fleet.token_file.write_text("eyJ.first\n")
    eventually(lambda: fleet.reports)
    fleet.token = "second"  # it rotates
    fleet.token_file.write_text("second")
    fleet.reports.clear()
    eventually(lambda: fleet.reports)
    assert "stranger" not in caplog.text
    assert "eyJ" not in caplog.text


def test_a_certificate_of_another_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fleet = FakeScheduler(tmp_path, "lockstep-central.lockstep-system.svc")
    fleet.start()
    with node_box() as box:
        box.configure(server=fleet.address, ca_file=fleet.ca_file, token_file=fleet.token_file)
        box.start()
        eventually(lambda: "is unreachable" in caplog.text)
        assert not fleet.reports
        box.agent.stop()
        box.configure(server_name="lockstep-central.lockstep-system.svc")
        box.start()
        eventually(lambda: fleet.reports)
    fleet.stop()


@pytest.mark.slow
def test_a_scheduler_that_is_away_for_an_hour_costs_nothing_but_attempts(
    fleet: FakeScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    """As many attempts as in an hour, without the pauses: nothing piles up, one line is logged, and
    the first report after it is the node's state of that moment."""
    caplog.set_level(logging.INFO)
    attempts = int(3600 / Backoff().most_s)
    fleet.stop()
    node = AgentNode("node-1")
    peer = SchedulerEndpoint(fleet.address, fleet.ca_file, fleet.token_file)
    reporter = Reporter(node, peer, 0.1, "1", backoff=lambda: Backoff(0.0005, 0.001))
    stop = threading.Event()
    threads = [
        threading.Thread(target=work, args=(stop,)) for work in (reporter.run, reporter.run_intents)
    ]
    node.set_grants(())
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: reporter.failed > 50)
        before = own_bytes()
        topologies = [survey(machines.machine()), survey(without(7))]
        for change in range(200):  # the node changes meanwhile
            node.set_topology(topologies[change % 2])
        eventually(lambda: reporter.failed > 50 + attempts, 40)
        assert own_bytes() - before < 8 << 20
        fleet.start()
        eventually(lambda: fleet.reports)
        assert fleet.reports[0].generation == node.state.generation
        assert not fleet.reports[0].heartbeat
        assert full(fleet) == 1
    finally:
        stop.set()
        reporter.stop()
        node.wake()
        for thread in threads:
            thread.join(5)
    away = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(away) == 1


@pytest.mark.slow
def test_a_scheduler_whose_machine_is_gone_without_a_word(tmp_path: Path) -> None:
    """Its connections stay open without answers. Plans come by long polls, which would notice
    last."""
    lost, other = FakeScheduler(tmp_path, hold_s=60), FakeScheduler(tmp_path, hold_s=60)
    other.authority = lost.authority
    for each in (lost, other):
        each.start()
    lost.ca_file.write_bytes(lost.authority.ca)
    node, stop = AgentNode("node-1"), threading.Event()
    with Cable(lost.port) as cable:
        peer = SchedulerEndpoint(
            f"localhost:{cable.port}", lost.ca_file, lost.token_file, ping_s=0.4
        )
        reporter = Reporter(node, peer, 600, "1", backoff=lambda: Backoff(0.01, 0.05))
        thread = threading.Thread(target=reporter.run_intents, args=(stop,))
        thread.start()
        try:
            lost.plan(intent("a", [1]))
            eventually(lambda: lost.arrived > 1)
            cable.freeze(to=other.port)
            other.plan(intent("b", [2]), intent("c", [3]))
            eventually(lambda: node.state.intents == (intent("b", [2]), intent("c", [3])), 40)
        finally:
            stop.set()
            reporter.stop()
            for each in (lost, other):
                each.stop()
            thread.join(5)

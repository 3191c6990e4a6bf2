"""The scheduler knows when the kubelet does not have the devices: as the agent starts, while the kubelet restarts, and
when the agent leaves."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protos.names import GPU
from protos.stubs import fleet_pb2 as pb
from tests.fakes.eventually import eventually
from tests.fakes.fake_scheduler import FakeScheduler
from tests.fakes.nodebox import NodeBox, node_box


class Observed:
    """Reports, each with the GPUs that the kubelet has when it arrives."""

    def __init__(self, fleet: FakeScheduler, box: NodeBox) -> None:
        self.reports: list[tuple[pb.NodeReport, int]] = []
        self._box = box
        fleet.on_report = self._add

    def _add(self, report: pb.NodeReport) -> None:
        self.reports.append((report, self._box.kubelet.allocatable.get(GPU, 0)))

    def of(self, boot: str) -> list[tuple[bool, int]]:
        """Of one run of the agent: whether the devices are offered, and the kubelet's GPUs."""
        return [(not one.not_offered, gpus) for one, gpus in self.reports if one.boot_id == boot]


@pytest.fixture
def fleet() -> Iterator[FakeScheduler]:
    with tempfile.TemporaryDirectory(prefix="ls-") as name:
        made = FakeScheduler(Path(name))
        made.start()
        yield made
        made.stop()


@pytest.fixture
def box(fleet: FakeScheduler) -> Iterator[NodeBox]:
    with node_box() as made:
        made.configure(
            server=fleet.address,
            ca_file=fleet.ca_file,
            token_file=fleet.token_file,
            report_every_s=300.0,  # nothing below waits for a heartbeat
        )
        yield made


def is_offered(seen: Observed, boot: str) -> bool:
    return [offered for offered, _ in seen.of(boot)][-1:] == [True]


def test_a_starting_agent_says_so_until_the_kubelet_has_all(
    fleet: FakeScheduler, box: NodeBox
) -> None:
    seen, boot = Observed(fleet, box), box.agent.node.boot_id
    box.start()
    eventually(lambda: is_offered(seen, boot))
    eventually(lambda: box.kubelet.allocatable.get(GPU) == 8)
    offered = [offered for offered, _ in seen.of(boot)]
    assert offered == [False] * (len(offered) - 1) + [True]
    first, _ = seen.reports[0]
    assert first.heartbeat, "before it has looked at the hardware"
    assert first.not_offered


def test_without_a_kubelet_nothing_is_offered(fleet: FakeScheduler, box: NodeBox) -> None:
    box.kubelet.stop()
    seen, boot = Observed(fleet, box), box.agent.node.boot_id
    box.agent.start()
    eventually(lambda: any(not report.heartbeat for report, _ in seen.reports))
    assert not any(offered for offered, _ in seen.of(boot))
    now = time.monotonic()
    assert box.agent.awaits_kubelet(now)
    assert not box.agent.awaits_kubelet(now + 90), (
        "a plugin that is refused closes no node for ever"
    )
    box.kubelet.start()
    eventually(lambda: is_offered(seen, boot))


def test_a_restart_of_the_kubelet_is_reported_at_once(fleet: FakeScheduler, box: NodeBox) -> None:
    seen, boot = Observed(fleet, box), box.agent.node.boot_id
    box.start()
    eventually(lambda: is_offered(seen, boot))
    box.kubelet.kill()
    eventually(lambda: not is_offered(seen, boot))
    box.kubelet.start()
    eventually(lambda: is_offered(seen, boot))


def test_a_leaving_agent_says_so_before_the_kubelet_loses_the_devices(
    fleet: FakeScheduler, box: NodeBox
) -> None:
    seen, boot = Observed(fleet, box), box.agent.node.boot_id
    box.start()
    eventually(lambda: is_offered(seen, boot))
    box.agent.stop()
    assert (False, 8) in seen.of(boot), "the kubelet still has them"
    assert not seen.of(boot)[-1][0]
    eventually(lambda: box.kubelet.allocatable.get(GPU) == 0)

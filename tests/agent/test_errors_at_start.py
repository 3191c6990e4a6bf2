"""Errors that were there before the agent: it learns of them at its start."""

from pathlib import Path

import pytest

from tests.agent.nvml_box import nvml_box
from tests.fakes.eventually import eventually
from tests.fakes.fake_scheduler import FakeScheduler

pytestmark = pytest.mark.slow


def test_an_agent_that_starts_with_uncorrectable_errors_present_knows_them(
    nvml_folder: Path,
) -> None:
    with nvml_box(nvml_folder) as box:
        fleet = FakeScheduler(box.folder)
        fleet.start()
        try:
            box.control.set("ecc", 2, 3)
            box.control.set("ecc", 4, 3)
            box.control.set("recovery", 4, 0)  # the driver knows of them, and asks for nothing
            box.whole = 7
            scheduler = (f"--server={fleet.address}", f"--ca-file={fleet.ca_file}")
            with box.running(*scheduler, f"--token-file={fleet.token_file}", "--hold-xid=600"):
                eventually(lambda: any(report.topology.gpus for report in fleet.reports), 40)
                topology = next(r.topology for r in fleet.reports if r.topology.gpus)
                ill = {gpu.index: gpu.why for gpu in topology.gpus if not gpu.healthy}
                assert ill == {2: "3 uncorrectable memory errors since its last reset"}
                box.control.set("ecc", 2, 0)
                box.assert_healthy(8)
        finally:
            fleet.stop()

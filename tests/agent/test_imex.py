"""IMEX channels that are asked for, as the agent's process sees and reports them."""

import urllib.request
from pathlib import Path

import pytest

from agent.machine import capture, imex
from agent.machine.survey import survey
from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from central.standalone.local_cluster import free_port
from protos import matrix
from protos.names import CLIQUE
from protos.topology import NodeTopology
from tests.agent.nvml_box import nvml_box
from tests.agent.nvml_fixture import CAPTURES
from tests.central import factories

RACK, ALONE = "gb200-nvl72-tray-4", "hgx-h100-8"


def channel(folder: Path) -> None:
    made = folder / imex.channel_file(0)
    made.parent.mkdir(parents=True)
    made.touch()


def places_of_a_gang(*trays: NodeTopology) -> set[str]:
    """Of as many pods as trays, in one NVLink domain."""
    made, facts = new_scheduler((CLIQUE,)), list[Fact]()
    for number, each in enumerate(trays):
        facts += [factories.node(f"n{number}", gpus=4), factories.report(f"n{number}", each)]
        facts.append(factories.pod(f"g-{number}", 4, "g"))
    facts.append(factories.gang("g", len(trays), topology_required=CLIQUE))
    return {each.node for each in schedule_once(made, facts, 0.0) if isinstance(each, Bind)}


def test_a_missing_channel_takes_the_node_out_of_its_nvlink_domain(tmp_path: Path) -> None:
    seen = survey(capture.load(CAPTURES / f"{RACK}.json"))
    assert imex.checked(seen, -1, tmp_path) is seen, "none is asked for"
    without = imex.checked(seen, 0, tmp_path)
    assert places_of_a_gang(seen, seen) == {"n0", "n1"}
    assert places_of_a_gang(seen, without) == set()
    assert without.links == seen.links, "NVLink inside the machine stays"
    shown = matrix.table(without)
    assert (
        "NVLink ends at this machine: /dev/nvidia-caps-imex-channels/channel0 is missing" in shown
    )
    channel(tmp_path)
    assert imex.checked(seen, 0, tmp_path) is seen
    assert imex.checked(seen, 1, tmp_path) is not seen, "another channel"


def test_a_machine_without_others_on_its_fabric_needs_no_channel(tmp_path: Path) -> None:
    seen = survey(capture.load(CAPTURES / f"{ALONE}.json"))
    assert imex.checked(seen, 0, tmp_path) is seen


@pytest.mark.slow
def test_the_agent_says_that_the_channel_is_missing(nvml_folder: Path, tmp_path: Path) -> None:
    at = free_port()

    def missing() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{at}/metrics", timeout=20) as page:
            return "lockstep_imex_missing 1.0" in page.read().decode().splitlines()

    flags = ("--imex-channel=0", f"--dev-root={tmp_path}", f"--metrics-listen=127.0.0.1:{at}")
    with nvml_box(nvml_folder) as box:
        box.hardware.install(capture.load(CAPTURES / f"{RACK}.json"))
        box.whole = 4
        with box.running(*flags):
            assert missing()
            assert "NVLink ends at this machine: " in box.said()
        channel(tmp_path)
        with box.running(*flags):
            assert not missing()
            assert "NVLink ends" not in box.said()

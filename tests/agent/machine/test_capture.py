"""Captures are written, read back, and refused with the file and the field."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.machine import capture
from agent.machine.capture import CaptureError
from tests.agent.nvml_fixture import CAPTURES, NAMES
from tests.captures import make

Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_capture_loads_as_the_same_machine(name: str, tmp_path: Path) -> None:
    machine = capture.load(CAPTURES / f"{name}.json")
    capture.save(machine, tmp_path / "again.json")
    assert capture.load(tmp_path / "again.json") == machine


def test_every_fact_of_a_machine_is_saved() -> None:
    machine = capture.load(CAPTURES / f"{NAMES[0]}.json")
    nvml = replace(machine.nvml, driver_version="1.2", nvml_version="3.4", cuda_version="5.6")
    sysfs = replace(machine.sysfs, rdma_exclusive=True, pcie_source="a file")
    told = replace(machine, nvml=nvml, sysfs=sysfs)
    assert capture.loads(capture.dumps(told)) == told


def test_the_captures_match_their_descriptions() -> None:
    made = dict(make.machines())
    assert sorted(made) == NAMES
    for name, machine in made.items():
        assert capture.dumps(machine) == make.where(name).read_text(), name


def refused(text: str) -> str:
    with pytest.raises(CaptureError) as caught:
        capture.loads(text, "capture.json")
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c["gpus"][3].update(pci=7), "gpus[3].pci: must be a string, not 7"),
        (
            lambda c: c["gpus"][3].update(pci="07:00.0"),
            'gpus[3].pci: "07:00.0" is not a PCI address such as 0000:07:00.0',
        ),
        (lambda c: c["gpus"][3].pop("index"), "gpus[3].index: missing"),
        (
            lambda c: c["gpus"][3].update(index=4),
            "gpus[3].index: is 4; GPUs must be listed by index",
        ),
        (lambda c: c["gpus"][3].update(uuid=c["gpus"][0]["uuid"]), "gpus[3].uuid: GPU-"),
        (lambda c: c["gpus"][2].update(colour="red"), "gpus[2].colour: not a field"),
        (lambda c: c["gpus"][2].update(mig="no"), 'gpus[2].mig: must be true or false, not "no"'),
        (lambda c: c["gpus"][1]["nvlinks"][0].pop("active"), "gpus[1].nvlinks[0].active: missing"),
        (lambda c: c["gpus"][0].update(nvlinks={}), "gpus[0].nvlinks: must be a list, not {}"),
        (lambda c: c["gpus"][0].update(ancestors=[1]), "gpus[0].ancestors: must have an entry"),
        (lambda c: c["gpus"].append(3), "gpus[8]: must be an object, not 3"),
        (lambda c: c["pci"][0].update(path="/etc/passwd"), "pci[0].path: must start with devices/"),
        (lambda c: c["pci"][0].update(address="x"), 'pci[0].address: "x" is not a PCI address'),
        (lambda c: c["infiniband"][0].update(pci="0000:ff:1f.7"), "infiniband[0].pci: 0000:ff"),
        (lambda c: c["infiniband"][0].update(name="a/b"), "infiniband[0].name"),
        (
            lambda c: c["numa"][0].update(distance=["near"]),
            "numa[0].distance[0]: must be an integer",
        ),
        (
            lambda c: c["rdma_cgroup"].update(version=True),
            "rdma_cgroup.version: must be an integer",
        ),
        (lambda c: c.update(schema="lockstep.dev/capture/v2"), 'schema: is "lockstep.dev/capture'),
        (lambda c: c.pop("schema"), "schema: missing; this version reads lockstep.dev/capture/v1"),
    ],
)
def test_a_wrong_field_is_named(change: Change, sentence: str) -> None:
    data = json.loads((CAPTURES / "dgx1-v100-8.json").read_text())
    change(data)
    assert refused(json.dumps(data)).startswith(f"capture.json: {sentence}")


@pytest.mark.parametrize("text", ["[]", "3", "null", '"capture"'])
def test_json_that_is_no_object_is_refused(text: str) -> None:
    assert refused(text).startswith("capture.json: schema: missing; a capture is an object")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CaptureError, match=r"c\.json can't be read: not UTF-8 text"):
        capture.load(tmp_path / "c.json")
    with pytest.raises(CaptureError, match="can't be read: Is a directory"):
        capture.load(tmp_path)


def test_nodes_with_one_capture_have_devices_of_their_own() -> None:
    """Each node's UUIDs are the same at each start, and no other node's."""
    found = [
        [gpu.uuid for gpu in capture.load(CAPTURES / "hgx-h100-8.json", node).nvml.gpus]
        for node in ("a", "b", "a", "")
    ]
    assert found[0] == found[2]
    assert len({uuid for uuids in found for uuid in uuids}) == 24
    assert found[3] == [gpu.uuid for gpu in capture.load(CAPTURES / "hgx-h100-8.json").nvml.gpus]

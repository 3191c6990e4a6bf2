"""A driver that lies about one GPU, or about how many there are, through NVIDIA's binding on the fake library."""

import json
from pathlib import Path

import pytest

from agent.machine import capture
from tests.agent.nvml_fixture import CAPTURES, Hardware, library
from tests.fakes.nvml import build

MACHINE = capture.load(CAPTURES / "hgx-h100-8.json")
UUIDS = [gpu.uuid for gpu in MACHINE.nvml.gpus]
LIES = {
    3: (f"uuid {UUIDS[3]}", b"uuid GPU-\xff\xfe", "NVML can't read it: 'utf-8' codec can't decode"),
    4: (f"uuid {UUIDS[4]}", f"uuid {UUIDS[5]}".encode(), ""),
    5: ("", b"", "NVML says that it has the UUID of GPU 4"),
    6: (
        f"memory {MACHINE.nvml.gpus[6].memory_bytes}",
        b"memory 18446744073709551615",
        "NVML says that it has 18446744073709551615 bytes of memory",
    ),
    7: (f"name {MACHINE.nvml.gpus[7].model}", b"name \xff", ""),
}


@pytest.fixture
def hardware(tmp_path: Path) -> Hardware:
    made = Hardware(library(tmp_path / "nvml"), tmp_path / "machine")
    made.install(MACHINE)
    return made


def lie(profile: bytes) -> bytes:
    head, *gpus = profile.split(b"\ngpu\n")
    for index, (true, false, _) in LIES.items():
        assert true.encode() in gpus[index]
        gpus[index] = gpus[index].replace(true.encode(), false, 1) if true else gpus[index]
    return b"\ngpu\n".join([head + b"\ncount 4000000000", *gpus])


def test_the_others_are_as_they_were(hardware: Hardware) -> None:
    before = json.loads(hardware.seen("topology", "-o", "json"))
    profile = hardware.folder / build.PROFILE
    profile.write_bytes(lie(profile.read_bytes()))
    after = json.loads(hardware.seen("topology", "-o", "json"))
    assert len(after["gpus"]) == 8
    assert after["gpus"][:3] == before["gpus"][:3]
    for index, (_, _, why) in LIES.items():
        assert after["gpus"][index]["healthy"] == (not why)
        assert after["gpus"][index]["why"].startswith(why)
    assert len({gpu["uuid"] for gpu in after["gpus"]}) == 8
    assert [row[:3] for row in after["links"][:3]] == [row[:3] for row in before["links"][:3]]

"""lockstep-agent topology and capture, as processes, on the fake NVML library and a rendered /sys:
the matrix of each named machine, cell by cell as it was published."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from agent.__main__ import main
from agent.machine import capture
from agent.machine.facts import NvmlFacts
from tests.agent.nvml_fixture import CAPTURES, NAMES, Hardware

pytestmark = pytest.mark.slow

Cells = dict[tuple[str, str], str]
PUBLISHED = CAPTURES / "published"
COLUMNS = {"CPU Affinity": "CPU", "NUMA Affinity": "NUMA", "GPU NUMA ID": "GPU-NUMA"}


@pytest.fixture
def hardware(nvml_folder: Path, tmp_path: Path) -> Hardware:
    return Hardware(nvml_folder, tmp_path / "machine")


def cells(text: str) -> Cells:
    """(row, column) -> word, of a matrix as published or as printed."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    header = lines[0]
    for name, short in COLUMNS.items():
        header = header.replace(name, short)
    columns = header.split()
    found: Cells = {}
    for line in lines[1:]:
        if not line.strip():
            break
        row, *words = line.split()
        found |= {(row, column): word for column, word in zip(columns, words, strict=False)}
    return found


def legend(table: str) -> dict[str, str]:
    """mlx5_0 -> NIC0"""
    return {name: nic for nic, name in re.findall(r"^  (NIC\d+): (\S+)$", table, re.MULTILINE)}


@pytest.mark.parametrize("name", NAMES)
def test_a_captured_machine_is_the_machine_and_has_every_published_cell(
    name: str, hardware: Hardware, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = cells((PUBLISHED / f"{name}.txt").read_text())
    machine = capture.load(CAPTURES / f"{name}.json")
    hardware.install(machine)
    file = hardware.folder / "captured.json"
    file.write_text(hardware.seen("capture"))
    again = capture.load(file)
    assert (again.nvml, again.sysfs) == (machine.nvml, machine.sysfs)
    assert again.host.boot_id
    assert main(["topology", "--capture", str(file)]) == 0
    printed, errors = capsys.readouterr()
    assert errors == ""
    ours, nics = cells(printed), legend(printed)

    def label(text: str) -> str:
        """NICs are published by name, by number, or by a shortened name."""
        return nics.get(text) or nics.get(re.sub(r"^mlx(\d+)$", r"mlx5_\1", text)) or text

    wrong = {
        key: (word, ours.get((label(key[0]), label(key[1]))))
        for key, word in expected.items()
        if ours.get((label(key[0]), label(key[1]))) != word
    }
    assert not wrong, "published, printed"
    assert ("GPU0", "GPU0") in expected, "the file was read"


def test_every_named_machine_has_a_published_matrix() -> None:
    assert sorted(path.stem for path in PUBLISHED.glob("*.txt")) == NAMES
    assert len(NAMES) == 18


def test_the_hardware_and_its_capture_give_one_answer(hardware: Hardware) -> None:
    hardware.install(capture.load(CAPTURES / "hgx-h100-8.json"))
    file = hardware.folder / "captured.json"
    file.write_text(hardware.seen("capture"))
    live = json.loads(hardware.seen("topology", "-o", "json", "--node", "n1"))
    filed = hardware.run("topology", "--capture", str(file), "-o", "json", "--node", "n1")
    assert live == json.loads(filed.stdout)
    assert live["node"] == "n1"
    assert live["islands"] == [list(range(8))]
    assert len(live["hcas"]) == 12


def test_a_library_below_the_drivers_root_is_found(nvml_folder: Path, tmp_path: Path) -> None:
    hardware = Hardware(None, tmp_path / "machine")
    hardware.install(capture.load(CAPTURES / "single-gpu.json"))
    place = tmp_path / "host/run/nvidia/driver/usr/lib/x86_64-linux-gnu"
    place.mkdir(parents=True)
    (place / "libnvidia-ml.so.1").symlink_to("/run/nvidia/driver/real/libnvidia-ml.so.550")
    real = tmp_path / "host/run/nvidia/driver/real"
    real.mkdir()
    (real / "libnvidia-ml.so.550").write_bytes((nvml_folder / "libnvidia-ml.so.1").read_bytes())
    table = hardware.seen("topology", "--driver-root", str(tmp_path / "host"))
    assert cells(table)["GPU0", "GPU0"] == "X"


@pytest.mark.parametrize(
    ("profile", "sentence"),
    [
        ("init_error 9\n", "the NVIDIA driver is not loaded"),
        ("init_error 18\n", "have different versions"),
        ("init_error 999\n", "could not initialise NVML"),
    ],
)
def test_a_driver_that_does_not_work_is_one_sentence(
    profile: str, sentence: str, hardware: Hardware
) -> None:
    hardware.install(capture.load(CAPTURES / "single-gpu.json"))
    hardware.install_profile(profile)
    done = hardware.run("topology", "--sysfs-root", str(hardware.sysfs))
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_library_is_one_sentence_with_the_fix(tmp_path: Path) -> None:
    """On a machine with NVIDIA's GPUs."""
    hardware = Hardware(None, tmp_path)
    hardware.install(capture.load(CAPTURES / "single-gpu.json"))
    done = hardware.run(
        "topology", "--driver-root", str(tmp_path), "--sysfs-root", str(hardware.sysfs)
    )
    if done.returncode == 0:
        pytest.skip("this machine has NVIDIA's library")
    assert done.returncode == 2
    assert "libnvidia-ml.so.1 is not on the loader's path or below" in done.stderr
    assert "--capture FILE" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_node_without_nvidia_shows_its_nics(tmp_path: Path) -> None:
    hardware = Hardware(None, tmp_path)
    machine = capture.load(CAPTURES / "hgx-h100-8.json")
    gpus = {gpu.pci for gpu in machine.nvml.gpus}
    pci = tuple(each for each in machine.sysfs.pci if each.address not in gpus)
    hardware.install(replace(machine, nvml=NvmlFacts(), sysfs=replace(machine.sysfs, pci=pci)))
    done = hardware.run(
        "topology", "--driver-root", str(tmp_path), "--sysfs-root", str(hardware.sysfs)
    )
    assert (done.returncode, done.stderr) == (
        0,
        "no NVIDIA driver, and no NVIDIA GPU on the PCI bus\n",
    )
    assert cells(done.stdout)["NIC1", "NIC2"] == "PIX"
    assert "GPU0" not in done.stdout


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "can't be read: No such file or directory"),
        ("{", "not JSON"),
        ("{}", "schema: missing"),
        (
            '{"schema": "lockstep.dev/capture/v9"}',
            'is "lockstep.dev/capture/v9"; this version reads',
        ),
        ('{"schema": "lockstep.dev/capture/v1"}', "gpus: missing"),
    ],
)
def test_a_bad_capture_is_one_sentence(text: str | None, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "capture.json"
    if text is not None:
        file.write_text(text)
    done = Hardware(None, tmp_path).run("topology", "--capture", str(file))
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1

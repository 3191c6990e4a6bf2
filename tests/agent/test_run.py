"""lockstep-agent as a program."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.__main__ import main
from agent.flags import parser
from agent.machine import capture
from agent.settings import Settings, settings
from central.standalone.hollow_kubelet import Container, KubeletPod
from protos.names import GPU, RDMA
from tests.agent.nvml_fixture import CAPTURES, Hardware, library
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.fake_scheduler import FakeScheduler
from tests.fakes.hollow_kubelet import HollowKubelet
from tests.fakes.nodebox import gpus, intent, pod
from tests.fakes.nvml import build
from tests.own_memory import own_bytes

pytestmark = pytest.mark.slow

PROGRAM = (sys.executable, "-m", "agent")
AGENT_MOST = 80 << 20  # bytes


@pytest.fixture
def short() -> Iterator[Path]:
    """A unix socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="ls-") as name:
        yield Path(name)


@contextmanager
def running(*arguments: object, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("w") as file:
        process = subprocess.Popen(
            [*PROGRAM, "run", *map(str, arguments)], stderr=file, env={**os.environ, **environment}
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_end_to_end(short: Path) -> None:
    file = machines.save(short, machines.machine())
    fleet = FakeScheduler(short, hold_s=60)
    fleet.start()
    log = short / "log"
    try:
        with (
            HollowKubelet(short) as kubelet,
            running(
                *("--capture", file, "--kubelet-dir", short, "--node", "node-7"),
                *("--server", fleet.address, "--ca-file", fleet.ca_file),
                *("--token-file", fleet.token_file, "--report-every", "0.2"),
                log=log,
            ) as process,
        ):
            eventually(lambda: kubelet.allocatable.get(GPU) == 8)
            version = fleet.plan(intent("a", [6, 3]))
            eventually(lambda: fleet.arrived == version)
            assert gpus(kubelet.add_pod(pod("a", 2))) == [3, 6]
            eventually(lambda: any(report.grants for report in fleet.reports))
            assert fleet.reports[-1].node == "node-7"
            assert own_bytes(process.pid) < AGENT_MOST

            started = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
            assert time.monotonic() - started < 20, "the poll for plans was waited for"
            assert fleet.reports[-1].not_offered
            eventually(lambda: kubelet.allocatable.get(GPU) == 0)
    finally:
        fleet.stop()
    text = log.read_text()
    assert "Traceback" not in text
    assert "eyJ" not in text  # the token


def test_devices_by_cdi(short: Path) -> None:
    """With CDI the container gets device names only, and the specs have the files."""
    machine = Hardware(library(short / "lib"), short)
    machine.install(capture.load(CAPTURES / "hgx-h100-8.json"))
    dev, specs = short / "dev", short / "cdi"
    (dev / "infiniband").mkdir(parents=True)
    names = [f"nvidia{i}" for i in range(8)] + ["nvidiactl", "nvidia-uvm", "infiniband/rdma_cm"]
    for name in (*names, *(f"infiniband/uverbs{i}" for i in range(12))):
        (dev / name).touch()
    log = short / "log"
    with (
        HollowKubelet(short) as kubelet,
        running(
            *("--kubelet-dir", short, "--sysfs-root", machine.sysfs, "--survey-every", "0.2"),
            *("--dev-root", dev, "--device-mode", "cdi", "--cdi-dir", specs),
            log=log,
            LOCKSTEP_FAKE_NVML=str(short / build.PROFILE),
            LD_LIBRARY_PATH=str(machine.library),
        ),
    ):
        eventually(lambda: RDMA in kubelet.allocatable and GPU in kubelet.allocatable)
        wants = Container("c0", ((GPU, 2), (RDMA, 1)))
        given = kubelet.add_pod(KubeletPod("uid-a", "team", "a", (wants,))).containers[0]
        assert given.device_nodes == ()
        uuids = given.envs["LOCKSTEP_GPU_UUIDS"].split(",")
        card = given.envs["LOCKSTEP_HCAS"]
        assert sorted(given.cdi_devices) == sorted(
            [*(f"lockstep.dev/gpu={uuid}" for uuid in uuids), f"lockstep.dev/rdma={card}"]
        )
        told = json.loads((specs / "lockstep.dev-gpu.json").read_text())
        assert {device["name"] for device in told["devices"]} >= set(uuids)
        (dev / "nvidia7").unlink()
        file = specs / "lockstep.dev-gpu.json"
        eventually(lambda: len(json.loads(file.read_text())["devices"]) == 7)
    assert sorted(path.name for path in specs.iterdir()) == [
        "lockstep.dev-gpu.json",
        "lockstep.dev-rdma.json",
    ]
    assert "Traceback" not in log.read_text()


def test_no_gpus_no_kubelet_no_scheduler_is_a_life_too(short: Path) -> None:
    log = short / "log"
    with running(
        *("--kubelet-dir", short / "none", "--driver-root", short, "--sysfs-root", short),
        *("--server", "localhost:1", "--ca-file", short / "none"),
        log=log,
    ) as process:
        eventually(lambda: "does not exist yet: the scheduler's CA" in log.read_text())
        eventually(lambda: "retrying every 30 s" in log.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    assert "Traceback" not in log.read_text()


def test_a_driver_that_comes_loses_a_gpu_and_finds_it_again(short: Path) -> None:
    """The driver's module is loaded late, and later a GPU is lost."""
    whole = capture.load(CAPTURES / "hgx-h100-8.json")
    lost = replace(whole.nvml.gpus[2], uuid="", pci="", fault="lost")
    hurt = replace(
        whole, nvml=replace(whole.nvml, gpus=(*whole.nvml.gpus[:2], lost, *whole.nvml.gpus[3:]))
    )
    machine = Hardware(library(short / "lib"), short)
    machine.install(whole)
    machine.install_profile(build.no_driver())
    log = short / "log"
    with (
        HollowKubelet(short) as kubelet,
        running(
            *("--kubelet-dir", short, "--sysfs-root", machine.sysfs, "--survey-every", "0.1"),
            *("--rdma-devices", "none", "--hold", "0.1"),
            log=log,
            LOCKSTEP_FAKE_NVML=str(short / build.PROFILE),
            LD_LIBRARY_PATH=str(machine.library),
        ) as process,
    ):
        eventually(lambda: "retrying every 0.1 s" in log.read_text())
        assert kubelet.capacity == {}
        machine.install_profile(build.profile(whole))
        eventually(lambda: kubelet.allocatable.get(GPU) == 8)
        machine.install_profile(build.profile(hurt))
        eventually(lambda: kubelet.allocatable.get(GPU) == 7)
        assert kubelet.capacity[GPU] == 8
        assert gpus(kubelet.add_pod(pod("a", 4))) == [4, 5, 6, 7]  # with the same indices
        machine.install_profile(build.no_driver())
        eventually(lambda: kubelet.allocatable.get(GPU) == 0)
        machine.install_profile(build.profile(whole))
        eventually(lambda: kubelet.allocatable.get(GPU) == 8)
        assert own_bytes(process.pid) < AGENT_MOST
    assert "GPU 2 (" in log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["run", "--serv", "a:1"], "unrecognized arguments: --serv a:1; did you mean --server?"),
        (["capture", "extra"], "lockstep-agent capture: unrecognized arguments: extra"),
        (["rnu"], 'COMMAND: "rnu" is unknown; did you mean run?'),
        (["keepr"], "is not one of run, topology, gpu-setup, capture, migrate"),
        (["topology", "-o", "jsn"], '-o/--output: "jsn" is unknown; did you mean json?'),
        (["run", "--server", "nowhere"], "'nowhere' is not HOST:PORT"),
        (["run", "--report-every", "soon"], "'soon' is not a number of seconds"),
        (["run", "--device-mode", "magic"], '--device-mode: "magic" is not one of auto, env, cdi'),
        (["run", "--rdma-shares", "0"], "'0' is not a whole number from 1 to 1000"),
        (["run", "--rdma-devices", ","], "no NIC selected"),
        (["run", "--pass-device-nodes", "maybe"], '"maybe" is not one of'),
        (["dance"], '"dance" is not one of run'),
    ],
)
def test_bad_flags_are_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "topology", "capture"])
def test_a_bad_capture_is_one_sentence(
    command: str, short: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = short / "x.json"
    file.write_text(json.dumps({"schema": "something/v9"}))
    extra = ["--kubelet-dir", str(short)] if command == "run" else []
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        assert main([command, "--capture", str(file), *extra]) == 2
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
    said = [line for line in capsys.readouterr().err.splitlines() if "INFO" not in line]
    assert len(said) == 1
    assert str(file) in said[0]


def test_cdi_needs_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--device-mode", "cdi"]) == 2
    assert capsys.readouterr().err == (
        "lockstep-agent: --device-mode cdi needs --cdi-dir, such as /var/run/cdi\n"
    )


def test_flags_become_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "node-3")
    monkeypatch.setenv("LOCKSTEP_SERVER", "lockstep-central:9443")
    assert settings(parser().parse_args(["run"])) == Settings(
        node="node-3", server="lockstep-central:9443"
    )
    given = settings(
        parser().parse_args(
            ["run", "--sysfs-root=/host/sys", "--driver-root=/host", "--report-every=2.5"]
        )
    )
    assert given.sysfs_root == Path("/host/sys")
    assert given.driver_root == Path("/host")
    assert given.report_every_s == 2.5


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("lockstep-agent ")

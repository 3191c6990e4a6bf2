"""The fake NVML library and its profile: python -m tests.fakes.nvml.build OUT_DIR CAPTURE.json"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from agent.machine import capture
from agent.machine.facts import GpuFacts, Machine, NvLink, Unusable

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"
PROFILE = "fake-nvml.profile"  # file name, beside the library
CONTROL = "fake-nvml.control"  # beside the profile: see control.h
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
REMOTE = {"gpu": 0, "npu": 1, "switch": 2, "": 255}


def build(directory: Path, hide: tuple[str, ...] = ()) -> Path:
    """Compiles the library into the directory. `hide` are calls that an older driver lacks.
    Raises Unusable."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise Unusable("the fake NVML library needs a C compiler (gcc or cc), and there is none")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / LIBRARY
    renamed = [f"-D{name}=hidden_{name}" for name in hide]
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *renamed]
    command += [
        "-Wl,-Bsymbolic",
        "-Wl,-soname," + LIBRARY,
        "-o",
        str(library),
        str(SOURCE),
        "-ldl",
        "-lpthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unusable(f"{SOURCE.name} did not compile: {done.stderr.strip()}")
    return library


def profile(machine: Machine) -> str:
    """The machine in the library's format: a key and its values per line."""
    return (
        "\n".join([*_driver(machine), *(line for gpu in machine.nvml.gpus for line in _gpu(gpu))])
        + "\n"
    )


def no_driver() -> str:
    """The profile of a machine whose kernel module is not loaded."""
    return f"init_error {DRIVER_NOT_LOADED}\n"


def _driver(machine: Machine) -> Iterator[str]:
    nvml = machine.nvml
    yield f"driver {nvml.driver_version}"
    yield f"nvml {nvml.nvml_version}"
    if nvml.cuda_version:
        major, _, minor = nvml.cuda_version.partition(".")
        yield f"cuda {int(major) * 1000 + int(minor or 0) * 10}"


def _gpu(gpu: GpuFacts) -> Iterator[str]:
    yield "gpu"
    if gpu.fault:
        yield f"lost {GPU_IS_LOST}"
    texts = {
        "uuid": gpu.uuid,
        "name": gpu.model,
        "serial": gpu.serial,
        "pci": gpu.pci,
        "capability": gpu.capability,
        "cpus": gpu.cpu_affinity,
        "nodes": gpu.memory_affinity,
        "p2p": " ".join(map(str, gpu.p2p_nvlink)),
        "levels": " ".join(map(str, gpu.ancestors)),
    }
    numbers = {"minor": gpu.minor, "module": gpu.module_id, "numa": gpu.memory_numa}
    yield from (f"{key} {text}" for key, text in texts.items() if text)
    yield from (f"{key} {number}" for key, number in numbers.items() if number >= 0)
    yield f"device_id {gpu.device_id}"
    if gpu.memory_bytes or not gpu.integrated:
        yield f"memory {gpu.memory_bytes}"
    if gpu.mig or gpu.mig_change:
        yield f"mig {int(gpu.mig)} {int(gpu.mig != gpu.mig_change)}"
    for part in gpu.slices:
        place = f"{part.gi} {part.ci} {part.gi_slices} {part.ci_slices}"
        yield f"slice {place} {part.memory_bytes >> 20} {part.uuid} {part.name}"
    wear = gpu.wear
    if wear.ecc_volatile >= 0:
        yield f"ecc {wear.ecc_volatile} {wear.ecc_aggregate}"
    if wear.rows_remapped or wear.rows_pending or wear.rows_failed:
        yield f"rows {wear.rows_remapped} {int(wear.rows_pending)} {int(wear.rows_failed)}"
    if wear.pages_pending:
        yield "pages 1"
    if wear.recovery >= 0:
        yield f"recovery {wear.recovery}"
    if gpu.clock_events:
        yield f"clocks {gpu.clock_events}"
    if gpu.pcie_generation:
        yield f"pcie {gpu.pcie_generation} {gpu.pcie_width}"
    if gpu.platform:
        where = gpu.platform
        yield f"platform {where.slot} {where.tray} {where.host} {where.module} {where.chassis}"
    yield from (_link(link) for link in gpu.nvlinks)
    if gpu.fabric:
        fabric = gpu.fabric
        yield (
            f"fabric {fabric.state} {fabric.status} {fabric.clique_id} {fabric.health} "
            f"{fabric.cluster_uuid or '0' * 32}"
        )


def _link(link: NvLink) -> str:
    return f"link {link.link} {int(link.active)} {REMOTE[link.remote]} {link.remote_pci or '-'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, metavar="OUT_DIR")
    parser.add_argument("capture", type=Path, metavar="CAPTURE.json")
    arguments = parser.parse_args()
    try:
        machine = capture.load(arguments.capture)
        print(build(arguments.directory))
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    (arguments.directory / PROFILE).write_text(profile(machine), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

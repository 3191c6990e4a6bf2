"""The fake NVML library in the test's own process: below a driver's root, where opened(root) finds it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.machine.facts import GpuFacts, Machine, NvmlFacts
from agent.nvml import library
from tests.fakes.nvml import build
from tests.fakes.nvml.control import Control


class Driver:
    """built: the folder of a fake library."""

    def __init__(self, built: Path, root: Path, folder: str = "usr/lib64") -> None:
        self.root, self.folder = root, root / folder
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(built / build.LIBRARY, self.folder)
        self.control = Control(self.folder / build.CONTROL)

    def install(self, machine: Machine) -> None:
        self.profile(build.profile(machine))

    def profile(self, text: str) -> None:
        (self.folder / build.PROFILE).write_text(text)


@contextmanager
def loaded(built: Path, root: Path, *gpus: GpuFacts) -> Iterator[Driver]:
    """Unloads the library afterwards: the next test has another one."""
    driver = Driver(built, root)
    driver.install(of(*gpus))
    try:
        yield driver
    finally:
        library._forget()


def of(*gpus: GpuFacts) -> Machine:
    return Machine(NvmlFacts("580.1", "13.580.1", "13.0", gpus))

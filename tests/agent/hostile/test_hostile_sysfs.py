"""Every file of /sys that the agent reads, in every hostile state: one device at most is affected, the others are as
they were, and the scheduler accepts the report."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.machine import capture, pcie_source, plausible, sysfs
from agent.machine.facts import Machine, RdmaCgroup, RdmaDeviceLimit, SysfsFacts
from agent.machine.survey import survey
from agent.node_state import NodeState
from tests.agent.hostile.hostile_files import State, states
from tests.agent.hostile.reported import accepted, node_of
from tests.agent.nvml_fixture import CAPTURES
from tests.effort import TODAY
from tests.fakes import sysfs as fake
from tests.own_time import own_time

READ_S = 8.0  # of processor time, for the whole machine
STATES = list(states())


def machine() -> Machine:
    found = capture.load(CAPTURES / "hgx-h100-8.json")
    names = [each.name for each in found.sysfs.infiniband[:2]]
    limits = RdmaCgroup(2, tuple(RdmaDeviceLimit(name, 2, 1000) for name in names))
    return replace(found, sysfs=replace(found.sysfs, rdma_cgroup=limits, rdma_exclusive=True))


MACHINE = machine()


def kinds(root: Path) -> dict[str, list[Path]]:
    """The files below root by their last parts: files of one kind are read by the same code."""
    found: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            kind = f"{path.parent.name.rstrip('0123456789')}/{path.name}"
            found.setdefault(kind if "infiniband" in str(path) else path.name, []).append(path)
    return found


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("machine") / "sys"
    fake.render(MACHINE, root)
    return root


def others(facts: SysfsFacts, path: Path) -> tuple[object, ...]:
    """All but the devices on the file's path, and what a file of no device says."""
    parts = set(path.parts)
    return (
        [each for each in facts.pci if each.address not in parts and each.physfn not in parts],
        [each for each in facts.infiniband if not {each.name, each.pci} & parts],
        [each for each in facts.numa if f"node{each.id}" not in parts],
    )


def check(root: Path, path: Path, where: str, before: SysfsFacts) -> None:
    with own_time() as spent:
        facts = pcie_source.with_tree(sysfs.read(root), None, root, "n")
    assert spent.seconds < READ_S, where
    if "bus/pci" not in str(path) and path.name not in ("ibdev", "class", "vendor"):
        assert others(facts, path) == others(before, path), where
    found, _ = plausible.checked(replace(MACHINE, sysfs=facts))
    topology = survey(found)
    assert len(topology.gpus) == len(MACHINE.nvml.gpus), where
    accepted(node_of(NodeState(topology=topology)), where)


def changes(root: Path, each: int) -> Iterator[tuple[Path, State]]:
    dice = random.Random(f"sysfs {TODAY}")
    for paths in kinds(root).values():
        for state in dice.sample(STATES, min(each, len(STATES))):
            yield dice.choice(paths), state


@pytest.mark.parametrize(
    "each", [4, pytest.param(len(STATES), marks=pytest.mark.nightly)], ids=["few", "all"]
)
def test_a_file_of_sysfs(tree: Path, each: int, tmp_path: Path) -> None:
    before = sysfs.read(tree)
    seen = 0
    for path, state in list(changes(tree, each)):
        where = f"{path.relative_to(tree)}: {state.name}"
        kept = tmp_path / "kept"
        shutil.copy2(path, kept)
        state.become(path)
        try:
            check(tree, path, where, before)
        finally:
            _restore(path, kept)
        seen += 1
    assert seen >= 15 * each
    assert sysfs.read(tree) == before


def _restore(path: Path, kept: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    shutil.copy2(kept, path)


@pytest.mark.parametrize("state", STATES, ids=lambda each: each.name)
def test_the_file_of_the_pcie_tree(tree: Path, state: State, tmp_path: Path) -> None:
    file = tmp_path / "tree.xml"
    file.write_text("0000:18:00.0\n")
    state.become(file)
    facts = sysfs.read(tree)
    found = pcie_source.with_tree(facts, file, tmp_path, "n")
    assert [each.address for each in found.pci] == [each.address for each in facts.pci]
    if not state.name.startswith(("missing", "a directory", "a link")):
        assert str(file) in found.pcie_source
    checked, _ = plausible.checked(replace(MACHINE, sysfs=found))
    accepted(node_of(NodeState(topology=survey(checked))), state.name)

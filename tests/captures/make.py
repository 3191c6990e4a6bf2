"""The named machines, from compact descriptions: python -m tests.captures.make

Each reproduces a matrix that was published (see published/). What was published is a matrix;
addresses, bridges, models and the rest are as such machines have them, or plausible. Two of them
serve the demo and are package data of central/standalone; links lead there."""

from collections.abc import Iterator
from pathlib import Path

from agent.machine import capture
from agent.machine.facts import Machine
from tests.captures.blackwell import dgx_b200, hgx_b200_snc, hgx_b300
from tests.captures.dgx import dgx1, dgx2, dgx_a100
from tests.captures.hgx import b200_one_off, gb200, hgx_h100
from tests.captures.hosts import h100_four_snc, h100_no_nics, hgx_thirteen_nics, l40s_four
from tests.captures.mig import dgx_a100_mig
from tests.captures.pcie import pcie_plx, pcie_switch, rtx_pro, single

HERE = Path(__file__).parent
DEMO = HERE.parents[1] / "central" / "standalone" / "captures"
MACHINES = (
    dgx1,
    dgx2,
    dgx_a100,
    dgx_a100_mig,
    hgx_h100,
    gb200,
    pcie_switch,
    pcie_plx,
    b200_one_off,
    single,
    h100_four_snc,
    h100_no_nics,
    l40s_four,
    hgx_thirteen_nics,
    hgx_b300,
    dgx_b200,
    hgx_b200_snc,
    rtx_pro,
)
DEMONSTRATED = ("dgx-a100-8", "hgx-h100-8")


def machines() -> Iterator[tuple[str, Machine]]:
    for make in MACHINES:
        made = make()
        yield made.host.hostname, made


def where(name: str) -> Path:
    """The path of the file."""
    return (DEMO if name in DEMONSTRATED else HERE) / f"{name}.json"


def main() -> None:
    DEMO.mkdir(parents=True, exist_ok=True)
    for name, made in machines():
        capture.save(made, where(name))
        link = HERE / f"{name}.json"
        if not link.exists():
            link.symlink_to(Path(*[".."] * 2) / DEMO.relative_to(HERE.parents[1]) / link.name)
        print(where(name))


if __name__ == "__main__":
    main()

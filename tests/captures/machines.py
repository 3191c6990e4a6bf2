"""The simulator's machines, from the captures: python -m tests.captures.machines

Stores what the agent would report of each as package data, because the simulator must not import
the agent."""

import json
from pathlib import Path

from agent.machine import capture
from agent.machine.survey import survey
from protos.topology_json import to_json

HERE = Path(__file__).parent
MACHINES = HERE.parents[1] / "central" / "simulator" / "machines"


def made() -> dict[str, str]:
    """File name -> content."""
    return {file.name: _machine(file) for file in sorted(HERE.glob("*.json"))}


def _machine(file: Path) -> str:
    machine = capture.load(file)
    shown = to_json(file.stem, survey(machine))
    for unused in (
        "rdma_cgroup",
        "rdma_exclusive",
        "memlock",
        "bandwidth_gb_per_s",
        "weak",
        "pcie_source",
        "imex_why",
    ):
        del shown[unused]
    hcas = shown["hcas"]
    assert isinstance(hcas, list)
    for hca in hcas:
        del hca["pods"]
    shown["host"] = {"cpus": machine.host.cpus, "memory_bytes": machine.host.memory_bytes}
    rows = {name: value for name, value in shown.items() if isinstance(value, list)}
    plain = [
        f"  {json.dumps(name)}: {json.dumps(shown[name])}" for name in shown if name not in rows
    ]
    lists = [
        f"  {json.dumps(name)}: [\n"
        + ",\n".join(f"    {json.dumps(item)}" for item in items)
        + "\n  ]"
        for name, items in rows.items()
    ]
    return "{\n" + ",\n".join([*plain, *lists]) + "\n}\n"


def main() -> None:
    MACHINES.mkdir(exist_ok=True)
    for name, content in made().items():
        (MACHINES / name).write_text(content)


if __name__ == "__main__":
    main()

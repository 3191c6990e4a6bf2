"""Named machines (machines/*.json, as `lockstep-agent topology -o json` prints them), machines from files that
`lockstep-agent capture` or `topology -o json` printed, and uniform machines for nodes of which only the number
of GPUs is known."""

import subprocess
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from protos.common import own_program
from protos.gpu_sharing import WHOLE
from protos.topology import Gpu, Hca, NodeTopology, RdmaLimit, Slice

FOLDER = Path(__file__).parent / "machines"
MAX_UNIFORM = 64  # above this, GPUs of a node are not told apart


RAW = "lockstep.dev/capture/v1"  # the schema of what `lockstep-agent capture` prints
TIMEOUT_S = 60
MOST_BYTES = 16 << 20  # of a file; those of real machines have 0.1 MiB


class Unknown(ValueError):
    """The message names the unknown machine and the known ones, or what is wrong with the file."""


def known() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.json"))


@lru_cache(maxsize=256)
def named(name: str) -> tuple[NodeTopology, Mapping[str, int]]:
    """The topology, and the machine's cpu (in thousandths) and memory (in bytes), if the capture has them."""
    if name not in known():
        raise Unknown(
            f'"{name}" is not one of {", ".join(known())}, nor a file (./machine.json, a path from this file)'
        )
    raw = orjson.loads((FOLDER / f"{name}.json").read_bytes())
    return _topology(raw), _host(raw)


def is_file(name: str) -> bool:
    """Returns whether a capture is named by its file."""
    return "/" in name or name.endswith(".json")


@lru_cache(maxsize=256)
def from_file(path: Path) -> tuple[NodeTopology, Mapping[str, int]]:
    """Reads a machine like named(). Raises Unknown."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise Unknown(f"{path}: larger than {MOST_BYTES >> 20} MiB")
        raw = printed = orjson.loads(content)
        if isinstance(raw, dict) and raw.get("schema") == RAW:
            printed = _surveyed(path)
        return _topology(printed), _host(raw)
    except OSError as error:
        raise Unknown(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, Unknown):
            raise
        raise Unknown(
            f"{path}: not what `lockstep-agent capture` or `lockstep-agent topology -o json` prints"
        ) from error


def _surveyed(path: Path) -> dict[str, Any]:
    """Returns the topology that the agent reads from its capture. The agent is another program, so it is run."""
    command = [*own_program.command("agent"), "topology", "--capture", str(path), "-o", "json"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise Unknown(f"{path}: the agent has not read it in {TIMEOUT_S} s") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise Unknown(f"{path}: {lines[-1] if lines else 'the agent cannot read it'}")
    found: dict[str, Any] = orjson.loads(done.stdout)
    return found


def _host(raw: dict[str, Any]) -> dict[str, int]:
    host = raw.get("host") or {}
    has = {"cpu": host.get("cpus", 0) * 1000, "memory": host.get("memory_bytes", 0)}
    return {resource: amount for resource, amount in has.items() if amount}


def _topology(raw: dict[str, Any]) -> NodeTopology:
    return NodeTopology(
        gpus=tuple(_gpu(gpu) for gpu in raw["gpus"]),
        hcas=tuple(Hca(**_known(Hca, hca)) for hca in raw["hcas"]),
        links=tuple(tuple(row) for row in raw["links"]),
        islands=tuple(tuple(island) for island in raw["islands"]),
        # Older agents do not print them.
        pcie_switches=tuple(tuple(switch) for switch in raw.get("pcie_switches", ())),
    )


def _gpu(raw: dict[str, Any]) -> Gpu:
    slices = tuple(Slice(**_known(Slice, part)) for part in raw["slices"])
    return Gpu(**{**_known(Gpu, raw), "slices": slices})


def _known(kind: type, raw: dict[str, Any]) -> dict[str, Any]:
    """Agents of other versions print more, and some of what is printed is only for people."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in raw.items() if name in names}


@lru_cache(maxsize=256)
def with_shares(topology: NodeTopology, level: str = "none") -> NodeTopology:
    """The same machine, which also offers GPU shares with this level of memory enforcement."""
    gpus = tuple(
        gpu if gpu.mig else replace(gpu, shares=WHOLE, enforcement=level) for gpu in topology.gpus
    )
    return replace(topology, gpus=gpus)


@lru_cache(maxsize=256)
def with_nics(
    topology: NodeTopology, names: tuple[str, ...], shares: int, limits: RdmaLimit
) -> NodeTopology:
    """The same machine, which offers these NICs. limits: per NIC, of all pods together."""
    nics = tuple(replace(hca, shares=shares) if hca.name in names else hca for hca in topology.hcas)
    known = tuple((name, limits) for name in names) if limits != RdmaLimit() else None
    return replace(topology, hcas=nics, rdma_cgroup=known, rdma_settable=known is not None)


@lru_cache(maxsize=MAX_UNIFORM)
def uniform(gpus: int) -> NodeTopology:
    """A machine of equal GPUs in one island."""
    return NodeTopology(
        gpus=tuple(Gpu(index, f"GPU-{index}", "", 0, "") for index in range(gpus)),
        links=tuple(tuple("X" if a == b else "NV1" for b in range(gpus)) for a in range(gpus)),
        islands=(tuple(range(gpus)),),
    )

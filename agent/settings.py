"""The agent's configuration as one immutable value; flags.py describes each field."""

import argparse
from dataclasses import dataclass, field, fields
from importlib import metadata
from pathlib import Path

from agent.health.gpu_health import HoldDown
from agent.machine.facts import Unusable


@dataclass(frozen=True, slots=True)
class Settings:
    node: str
    server: str = ""  # empty: serve the kubelet only
    ca_file: Path | None = None
    token_file: Path | None = None
    server_name: str = ""
    kubelet_dir: Path = Path("/var/lib/kubelet")
    sysfs_root: Path = Path("/sys")
    proc_root: Path = Path("/proc")
    dev_root: Path = Path("/dev")
    driver_root: Path | None = None
    capture: Path | None = None
    capture_uuids: str = "kept"  # or own
    pcie_tree: Path | None = None
    report_every_s: float = 5.0
    survey_every_s: float = 30.0
    driver_wait_s: float = 20.0
    driver_lost_s: float = 180.0
    hold_down: HoldDown = field(default_factory=HoldDown)
    preflight: str = "none"  # or links, copy
    preflight_wait_s: float = 20.0
    numa_hints: str = "auto"  # or always, never
    pass_device_nodes: str = "auto"
    imex_channel: int = -1  # -1: none
    driver_mount: tuple[tuple[str, str], ...] = ()  # on the host, in containers with GPUs
    share_gpus: str = "all"
    share_config: Path | None = None
    gpu_memory: str = "auto"
    gpu_memory_grace_s: float = 10.0
    sharing_dir: Path | None = None
    rdma_devices: tuple[str, ...] = ("auto",)
    rdma_rails: tuple[str, ...] = ("none",)
    rdma_shares: int = 0  # 0: derived from the NICs' limits
    device_info_dir: Path | None = None
    device_mode: str = "auto"
    cdi_dir: Path | None = None
    cdi_kind: str = "lockstep.dev/gpu"
    device_claims: str = "off"  # or beside, only
    cgroup_root: Path | None = None
    rdma_hca_handles: int = -1  # -1: no limit
    rdma_hca_objects: int = -1
    metrics_listen: str = ""  # empty: not served
    log_level: str = "info"
    log_format: str = "text"

    def injection(self) -> str:
        """env, cdi or both."""
        if self.device_mode == "auto":
            return "both" if self.cdi_dir else "env"
        return self.device_mode


def settings(arguments: argparse.Namespace) -> Settings:
    """Converts the arguments of `run`. Raises Unusable for flags that contradict each other."""
    values = vars(arguments)
    given = {
        each.name: values[each.name.removesuffix("_s")]
        for each in fields(Settings)
        if each.name.removesuffix("_s") in values
    }
    given["hold_down"] = HoldDown(
        values["hold"], values["hold_most"], values["hold_xid"], values["settled"]
    )
    for name in ("sysfs_root", "proc_root", "driver_root", "capture", "pcie_tree"):
        given[name] = Path(given[name]) if given[name] else None
    if given["device_mode"] in ("cdi", "both") and not given["cdi_dir"]:
        raise Unusable(
            f"--device-mode {given['device_mode']} needs --cdi-dir, such as /var/run/cdi"
        )
    if given["device_claims"] != "off" and not (given["cdi_dir"] and given["server"]):
        raise Unusable(
            f"--device-claims {given['device_claims']} needs --server, which sends the devices of claims, and "
            "--cdi-dir, such as /var/run/cdi"
        )
    if values["hold_most"] < values["hold"]:
        raise Unusable(
            f"--hold-most {values['hold_most']:g} is less than --hold {values['hold']:g}"
        )
    return Settings(**given)


def version() -> str:
    try:
        return metadata.version("lockstep-scheduler")
    except metadata.PackageNotFoundError:
        return "unknown"

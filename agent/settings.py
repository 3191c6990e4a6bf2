"""The agent's configuration in one table: each field of Settings with its flag, help and default."""

import argparse
from dataclasses import dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from agent.health.gpu_health import HoldDown
from agent.machine.facts import Unusable


def _flag(typed: str, about: str, default: Any = None) -> Any:
    """typed: the flag and its value's name, such as "--node NAME". default: without such a name, the words to choose
    from, first the default."""
    row = {"typed": typed, "about": about, "default": default}
    return field(default=default if " " in typed else default[0], metadata=row)


@dataclass(frozen=True, slots=True)
class Settings:
    capture_uuids: str = _flag(
        "--capture-uuids",
        "UUIDs of the devices of --capture: kept: as captured; own: this node's own, so that many nodes "
        "can use one capture (default %(default)s)",
        ("kept", "own"),
    )
    node: str = _flag(
        "--node NAME", "the node's name in Kubernetes (default NODE_NAME, else the host name)", ""
    )
    server: str = _flag(
        "--server HOST:PORT",
        "address of the scheduler (default LOCKSTEP_SERVER; empty: serve the kubelet only)",
        "",
    )
    ca_file: Path | None = _flag(
        "--ca-file FILE", "CA certificate for the scheduler's certificate (default the system's)"
    )
    token_file: Path | None = _flag("--token-file FILE", "the agent's ServiceAccount token")
    server_name: str = _flag(
        "--server-name NAME",
        "name to expect in the scheduler's certificate (default the host of --server)",
        "",
    )
    kubelet_dir: Path = _flag(
        "--kubelet-dir DIR",
        "directory with device-plugins/ and pod-resources/ (default %(default)s)",
        Path("/var/lib/kubelet"),
    )
    numa_hints: str = _flag(
        "--numa-hints",
        "tell the kubelet's topology manager the devices' NUMA nodes: always: its policy chooses "
        "devices before the scheduler's plan; never; auto: only without --server (default auto)",
        ("auto", "always", "never"),
    )
    dev_root: Path = _flag("--dev-root DIR", "the host's /dev (default %(default)s)", Path("/dev"))
    pass_device_nodes: str = _flag(
        "--pass-device-nodes",
        "device files to pass to containers: auto: those that exist; always: all, and refuse "
        "the container if one is missing; never: none (default %(default)s)",
        ("auto", "always", "never"),
    )
    # -1: none.
    imex_channel: int = _flag(
        "--imex-channel NUMBER",
        "IMEX channel for containers with whole GPUs, for NVLink between machines (default none); "
        "the node must have /dev/nvidia-caps-imex-channels/channelNUMBER and run nvidia-imex",
        -1,
    )
    # On the host, in containers with GPUs.
    driver_mount: tuple[tuple[str, str], ...] = _flag(
        "--driver-mount HOST:CONTAINER",
        "directory of the host to mount, read only, into containers with GPUs, where no runtime of "
        "NVIDIA adds the driver's libraries, as on GKE (default none)",
        (),
    )
    share_gpus: str = _flag(
        "--share-gpus GPUS",
        "GPUs that pods may share (lockstep.dev/gpu-share), and how memory caps are enforced: "
        "all; none; indices; or '0-3: mps; 4: watch timeslice=long; 5: whole' with one of "
        "whole, auto, kernel, mps, watch, none (default all)",
        "all",
    )
    share_config: Path | None = _flag(
        "--share-config DIR",
        "directory that replaces --share-gpus and is read at each survey: the file named "
        "after the node, else the file default, in the syntax of --share-gpus; changes do not "
        "affect running pods",
    )
    sharing_dir: Path | None = _flag(
        "--sharing-dir DIR",
        "directory shared with `lockstep-agent gpu-setup`, which sets GPUs up for MPS and "
        "time slices (default neither is available)",
    )
    gpu_memory: str = _flag(
        "--gpu-memory",
        "enforcement of memory caps (lockstep.dev/gpu-memory) on GPUs that are shared by "
        "auto: auto: by the kernel if driver and kernel support it, else by watch if the "
        "driver reports memory by process (default); watch: pods that exceed their cap are "
        "evicted; none: not enforced",
        ("auto", "watch", "none"),
    )
    gpu_memory_grace_s: float = _flag(
        "--gpu-memory-grace SECONDS",
        "how long a pod may exceed its memory cap on a GPU with watch enforcement (default "
        "%(default)g)",
        10.0,
    )
    device_mode: str = _flag(
        "--device-mode",
        "how devices get into containers: env: environment variables and device files; cdi: "
        "CDI device names; both; auto: both if --cdi-dir is set, "
        "else env (default %(default)s)",
        ("auto", "env", "cdi", "both"),
    )
    cdi_dir: Path | None = _flag(
        "--cdi-dir DIR",
        "directory for CDI specs; container runtimes read /var/run/cdi (default none are written)",
    )
    cdi_kind: str = _flag(
        "--cdi-kind",
        "CDI kind of GPUs: lockstep.dev/gpu: the agent's own specs, with device files only; "
        "nvidia.com/gpu: the specs of NVIDIA's toolkit, with driver libraries (default "
        "%(default)s)",
        ("lockstep.dev/gpu", "nvidia.com/gpu"),
    )
    device_claims: str = _flag(
        "--device-claims",
        "GPUs and MIG slices as devices of resource claims (DRA): off; beside: claims and device plugin, never the "
        "same GPU; only: whole GPUs by claim alone (default %(default)s); needs --server and --cdi-dir",
        ("off", "beside", "only"),
    )
    rdma_devices: tuple[str, ...] = _flag(
        "--rdma-devices NICS",
        "RDMA NICs to serve, comma separated: names with * and ?; all; none; auto: those that "
        "share a PCIe switch with a GPU, else the fastest (default); properties joined by +, "
        "such as vendor=15b3+link=InfiniBand (vendor, device, driver, link, net, pci); vf: "
        "virtual functions (vf+pf=mlx5_0: of this NIC)",
        ("auto",),
    )
    # 0: derived from the NICs' limits.
    rdma_shares: int = _flag(
        "--rdma-shares N",
        "shares per RDMA NIC, each for one pod; auto: as many pods with the default limit as "
        "fit in the limit of the cgroup of all pods, 16 if there is no limit (default auto)",
        0,
    )
    rdma_rails: tuple[str, ...] = _flag(
        "--rdma-rails NICS",
        "NICs to offer by rail, as lockstep.dev/rail-0 and on instead of lockstep.dev/rdma: none; "
        "auto: each NIC that is served is a rail, that of GPU 0 first; or a list as for "
        "--rdma-devices, the NICs of rail 0 first (default none)",
        ("none",),
    )
    device_info_dir: Path | None = _flag(
        "--device-info-dir DIR",
        "the host's /var/run/k8s.cni.cncf.io/devinfo/dp, where device-info files of NICs are "
        "written for Multus (default none are written)",
    )
    cgroup_root: Path | None = _flag(
        "--cgroup-root DIR",
        "the host's /sys/fs/cgroup, writable; pods' RDMA and GPU memory limits are written "
        "there (default none are written)",
    )
    # -1: no limit.
    rdma_hca_handles: int = _flag(
        "--rdma-hca-handles N",
        "default limit of RDMA contexts for a pod on each of its RDMA NICs (default max)",
        -1,
    )
    rdma_hca_objects: int = _flag(
        "--rdma-hca-objects N",
        "default limit of RDMA objects (queue pairs, memory regions, ...) for a pod on each of its RDMA NICs "
        "(default max)",
        -1,
    )
    report_every_s: float = _flag(
        "--report-every SECONDS", "seconds between heartbeats (default %(default)g)", 5.0
    )
    survey_every_s: float = _flag(
        "--survey-every SECONDS",
        "seconds between hardware surveys (default %(default)g); driver events trigger one",
        30.0,
    )
    driver_wait_s: float = _flag(
        "--driver-wait SECONDS", "timeout of driver calls in seconds (default %(default)g)", 20.0
    )
    driver_lost_s: float = _flag(
        "--driver-lost SECONDS",
        "seconds after which a driver that cannot be opened any more fails the liveness probe, so "
        "that a new container gets a new driver's library (default %(default)g)",
        180.0,
    )
    hold_down: HoldDown = field(default_factory=HoldDown)  # flags of its own
    preflight: str = _flag(
        "--preflight",
        "check GPUs while no pod has them, at the agent's start, after each use and every hour; "
        "links: NVLinks and the NIC beside the GPU; copy: also copies between GPUs, where the "
        "agent's container has CUDA; a GPU that fails is unhealthy until a check passes "
        "(default %(default)s)",
        ("none", "links", "copy"),
    )
    preflight_wait_s: float = _flag(
        "--preflight-wait SECONDS",
        "timeout of the copies of one check in seconds (default %(default)g)",
        20.0,
    )
    metrics_listen: str = _flag(
        "--metrics-listen HOST:PORT",
        "address for /metrics, /healthz and /readyz (default none; the shipped manifests set "
        "0.0.0.0:9400)",
        "",
    )
    sysfs_root: Path = Path("/sys")  # the flags of these five: agent.commands
    proc_root: Path = Path("/proc")
    driver_root: Path | None = None
    capture: Path | None = None
    pcie_tree: Path | None = None
    log_level: str = "info"  # the flags of both: protos.common.logs
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

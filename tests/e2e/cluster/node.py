"""A node: a machine with a real kubelet, kube-proxy and containerd."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.e2e.cluster import containerd
from tests.e2e.cluster.machine import Binds, Machine
from tests.e2e.cluster.network import link
from tests.e2e.cluster.pki import Pki
from tests.e2e.cluster.settings import (
    CLUSTER_DOMAIN,
    CONTROL_PLANE_IP,
    DNS_SERVICE_IP,
    MACHINES,
    NAME,
    PODS,
    program,
    wait,
)

# The kubelet sets these for the whole kernel; nodes are shown files that have them set already.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


class Node(Machine):
    def __init__(self, name: str, number: int) -> None:
        super().__init__(name)
        self.address = str(MACHINES[10 + number])
        self.pods = list(PODS.subnets(new_prefix=24))[number]
        self.interface = f"node{number}"

    def prepare(self, pki: Pki, options: dict[str, Any], flags: dict[str, list[str]]) -> None:
        """options: labels, taints, kubelet (fields of its configuration), cpu, memory, numa (what
        the kubelet finds in place of this machine's), sysfs (a tree to lay over /sys), files
        (path on the node: file or folder of this machine)."""
        self.directory.mkdir(parents=True, exist_ok=True)
        pki.issue(
            self.name, f"system:node:{self.name}", "system:nodes", names=(self.name, self.address)
        )
        (self.directory / "resolv.conf").write_text(f"nameserver {DNS_SERVICE_IP}\n")
        (self.directory / "cni").mkdir(exist_ok=True)
        self._write("kubelet.json", {**self._kubelet(pki), **options.get("kubelet", {})})
        self._write("kube-proxy.json", self._proxy(pki))
        self._write("cni/pods.conflist", self._cni())
        (self.directory / "containerd.toml").write_text(
            containerd.configuration(self.directory / "cni")
        )

        labels = ",".join(f"{k}={v}" for k, v in options.get("labels", {}).items())
        taints = ",".join(
            f"{t['key']}={t.get('value', '')}:{t['effect']}" for t in options.get("taints", [])
        )
        components = {
            "containerd": [
                str(program("containerd")),
                f"--config={self.directory}/containerd.toml",
            ],
            "kubelet": [
                str(program("kubelet")),
                f"--config={self.directory}/kubelet.json",
                f"--kubeconfig={pki.kubeconfig(self.name)}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
                f"--node-labels={labels}",
                f"--register-with-taints={taints}",
            ],
            "kube-proxy": [
                str(program("kube-proxy")),
                f"--config={self.directory}/kube-proxy.json",
            ],
        }
        for name, argv in components.items():
            argv.extend(flags.get(name, []))
        binds, trees = self._capacity(options)
        self.define(
            hostname=self.name,
            components=components,
            binds=[
                *self._kernel_settings(),
                *binds,
                *((Path(source), target) for target, source in options.get("files", {}).items()),
            ],
            sysfs=[*map(Path, filter(None, [options.get("sysfs")])), *trees],
        )

    def _kubelet(self, pki: Pki) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": pki.crt("ca")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": pki.crt(self.name),
            "tlsPrivateKeyFile": pki.key(self.name),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{NAME}/{self.name}",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "failCgroupV1": False,
            "clusterDNS": [DNS_SERVICE_IP],
            "clusterDomain": CLUSTER_DOMAIN,
            "resolvConf": self.directory / "resolv.conf",
            "failSwapOn": False,
            "oomScoreAdj": 0,  # to lower it takes CAP_SYS_RESOURCE, which not every root has
            "serializeImagePulls": False,
            "kubeAPIQPS": 50,  # the defaults since 1.27
            "kubeAPIBurst": 100,
            "eventRecordQPS": 50,
            "eventBurst": 100,
            "evictionHard": {
                "memory.available": "50Mi",
                "nodefs.available": "200Mi",
                "imagefs.available": "200Mi",
            },
            "imageGCHighThresholdPercent": 100,  # an image collected could not be pulled again
            # A plugin's devices show soon; it is also the time limit of the kubelet's requests.
            "nodeStatusUpdateFrequency": "2s",
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        }

    def _proxy(self, pki: Pki) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clientConnection": {"kubeconfig": pki.directory / "kube-proxy.kubeconfig"},
            "clusterCIDR": PODS,
            "hostnameOverride": self.name,
            "oomScoreAdj": 0,
            "metricsBindAddress": "127.0.0.1:10249",
            "conntrack": {
                **{"maxPerCore": 0, "min": 0},
                **{"tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            },
            "iptables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
        }

    def _cni(self) -> dict[str, Any]:
        ipam = {
            "type": "host-local",
            "dataDir": "/run/cni-addresses",
            "ranges": [[{"subnet": self.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        return {
            "cniVersion": "0.3.1",
            "name": "pods",
            "plugins": [
                {"type": "ptp", "ipam": ipam},
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }

    def _write(self, name: str, data: dict[str, Any]) -> None:
        (self.directory / name).write_text(json.dumps(data, indent=1, default=str))

    def _kernel_settings(self) -> Binds:
        binds: Binds = []
        for setting, value in KERNEL_SETTINGS.items():
            path = self.directory / "sysctl" / setting.replace("/", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{value}\n")
            binds.append((path, f"/proc/sys/{setting}"))
        return binds

    def _capacity(self, options: dict[str, Any]) -> tuple[Binds, list[Path]]:
        """Lets the kubelet find processors, NUMA nodes and memory that are not there."""
        binds: Binds = []
        trees: list[Path] = []
        kilobytes = int(options.get("memory", "0Gi").removesuffix("Gi")) * 1024 * 1024
        if kilobytes:
            keys = ("MemTotal", "MemFree", "MemAvailable")
            rest = [
                line
                for line in Path("/proc/meminfo").read_text().splitlines()
                if not line.startswith(keys)
            ]
            lines = [*(f"{key}: {kilobytes} kB" for key in keys), *rest]
            (self.directory / "meminfo").write_text("\n".join(lines) + "\n")
            binds.append((self.directory / "meminfo", "/proc/meminfo"))
        if cpus := options.get("cpu"):
            numa = options.get("numa", 1)
            trees.append(self.directory / "topology")
            self._processors(trees[0] / "devices/system", cpus, numa, kilobytes)
            text = "".join(
                f"processor\t: {cpu}\nphysical id\t: {cpu * numa // cpus}\n"
                f"core id\t\t: {cpu}\ncpu MHz\t\t: 2000.000\n\n"
                for cpu in range(cpus)
            )
            (self.directory / "cpuinfo").write_text(text)
            binds.append((self.directory / "cpuinfo", "/proc/cpuinfo"))
        return binds, trees

    def _processors(self, system: Path, cpus: int, numa: int, kilobytes: int) -> None:
        tree = system / "node"
        (system / "cpu").mkdir(parents=True, exist_ok=True)
        (system / "cpu/online").write_text(f"0-{cpus - 1}\n")
        for node in range(numa):
            (tree / f"node{node}").mkdir(parents=True, exist_ok=True)
            distances = ["10" if other == node else "21" for other in range(numa)]
            (tree / f"node{node}/distance").write_text(" ".join(distances) + "\n")
        for cpu in range(cpus):
            node = cpu * numa // cpus
            topology = tree / f"node{node}" / f"cpu{cpu}" / "topology"
            topology.mkdir(parents=True, exist_ok=True)
            (topology.parent / "online").write_text("1\n")
            (topology / "core_id").write_text(f"{cpu}\n")
            (topology / "physical_package_id").write_text(f"{node}\n")
            if kilobytes:
                share = kilobytes // numa
                (tree / f"node{node}" / "meminfo").write_text(f"Node {node} MemTotal: {share} kB\n")

    def boot(self) -> None:
        super().boot()
        link(self, self.interface)
        self.ip(
            f"addr add {self.address}/{MACHINES.prefixlen} dev eth0",
            "link set eth0 up",
            f"route add default via {CONTROL_PLANE_IP}",
        )
        self.start("containerd")

    def load(self, archive: Path) -> subprocess.Popen[str]:
        """Imports an image archive into this node's containerd."""
        into = [
            "--namespace=k8s.io",
            "images",
            "import",
            "--snapshotter",
            containerd.snapshotter(),
            "-",
        ]
        with archive.open("rb") as stream:
            return subprocess.Popen(
                self.command(program("ctr"), *into),
                stdin=stream,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def kill_container(self, container: str) -> subprocess.Popen[str]:
        """SIGKILL to all processes of the container, by its id."""
        kill = ("--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", "--all", container)
        return subprocess.Popen(self.command(program("ctr"), *kill), text=True)

    def wait_for_containerd(self) -> None:
        probe = self.command(program("ctr"), "--connect-timeout=1s", "version")
        wait(
            f"containerd (see {self.log}/containerd.log)",
            lambda: subprocess.run(probe, capture_output=True).returncode == 0,
        )

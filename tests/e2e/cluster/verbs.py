"""What can be done with a cluster: up, down, images onto its nodes, power, status."""

import contextlib
import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.e2e import image
from tests.e2e.cluster.api import Api
from tests.e2e.cluster.cgroup import Cgroup
from tests.e2e.cluster.machine import Machine
from tests.e2e.cluster.network import link_host
from tests.e2e.cluster.node import Node
from tests.e2e.cluster.pki import Pki
from tests.e2e.cluster.plane import control_plane
from tests.e2e.cluster.settings import (
    BUILDER,
    CACHE,
    CONTROL_PLANE,
    CONTROL_PLANE_IP,
    DNS_SERVICE_IP,
    KUBE,
    MACHINES,
    NAME,
    PATH,
    PAUSE_IMAGE,
    PODS,
    SERVICES,
    STATE,
    Trouble,
    program,
    run,
    say,
    wait,
)

TOOLS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "iptables": "iptables",
    "openssl": "openssl",
}


def build() -> None:
    """The programs, into the cache; at once where they are there already."""
    status = subprocess.run([BUILDER, KUBE, CACHE]).returncode
    if status:
        raise Trouble(f"{BUILDER.name} {KUBE}: exit status {status}")


def nodes_defined() -> list[Node]:
    path = STATE / "cluster.json"
    names = json.loads(path.read_text())["nodes"] if path.exists() else []
    return [Node(name, number) for number, name in enumerate(names, 1)]


def find(name: str) -> Machine:
    for machine in [Machine(CONTROL_PLANE), *nodes_defined()]:
        if machine.name == name:
            return machine
    raise Trouble(f"no machine is named {name}")


def kubeconfig() -> Path:
    return STATE / "pki/admin.kubeconfig"


def kubectl(*argv: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """As the cluster's administrator."""
    return subprocess.run(
        [program("kubectl"), f"--kubeconfig={kubeconfig()}", *argv],
        input=stdin,
        capture_output=True,
        text=True,
        env={"PATH": PATH, "HOME": str(STATE)},
    )


def check_host() -> None:
    if os.geteuid():
        raise Trouble("this needs root")
    if missing := sorted({p for t, p in TOOLS.items() if not shutil.which(t, path=PATH)}):
        raise Trouble(f"missing: apt-get install {' '.join(missing)}")
    if len(str(STATE)) > 60:
        raise Trouble(f"{STATE}: too long a path for the sockets in it")
    for route in json.loads(run("ip", "-json", "-4", "route")):
        if route["dst"] != "default":
            there = ipaddress.ip_network(route["dst"], strict=False)
            if any(network.overlaps(there) for network in (MACHINES, PODS, SERVICES)):
                raise Trouble(
                    f"this host has a route to {there} already, which the cluster would use: "
                    "is one up?"
                )


def up(config: dict[str, Any]) -> None:
    """config: {"nodes": [{"name": ..., ...}], "flags": {"kube-apiserver": ["--..."], ...}}"""
    if (STATE / "cluster.json").exists():
        raise Trouble(f"{STATE} holds a cluster already; `down` first")
    check_host()
    build()
    STATE.mkdir(parents=True, exist_ok=True)
    STATE.chmod(0o755)
    names = [node["name"] for node in config["nodes"]]
    (STATE / "cluster.json").write_text(json.dumps({"nodes": names}))
    flags = config.get("flags", {})

    pki = Pki(STATE / "pki")
    hub = control_plane(pki, flags)
    nodes = nodes_defined()
    for node, options in zip(nodes, config["nodes"], strict=True):
        node.prepare(pki, options, flags)
    say("certificates and configuration are written")

    hub.boot()
    link_host(hub, nodes)
    hub.start("etcd", "kube-apiserver")
    for node in nodes:
        node.boot()
    say(f"{1 + len(nodes)} machines are running")
    load_images(base_images(), nodes)
    say("the base images are loaded")

    api = Api()
    wait(f"the API server (see {hub.log})", lambda: api.get("/readyz") == "ok")
    hub.start()
    for node in nodes:
        node.start("kubelet", "kube-proxy")
    _serve_dns(api)
    wait(f"the nodes (see {STATE}/*/log)", lambda: not [n for n in nodes if not _bring_in(api, n)])
    wait("the default service account", lambda: account_ready(api))
    say(f"{len(nodes)} nodes are Ready; export KUBECONFIG={kubeconfig()}")


def _bring_in(api: Api, node: Node) -> bool:
    """Gives a node that has just joined its pods' addresses; tells whether it is Ready."""
    path = f"/api/v1/nodes/{node.name}"
    found = api.get(path)
    if "podCIDR" not in found["spec"]:
        api.patch(path, {"spec": {"podCIDR": str(node.pods), "podCIDRs": [str(node.pods)]}})
    conditions = {c["type"]: c["status"] for c in found["status"]["conditions"]}
    return conditions.get("Ready") == "True"


def account_ready(api: Api, namespace: str = "default") -> bool:
    """Whether pods are accepted: they are refused until their namespace has its default account."""
    return bool(api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))


def _serve_dns(api: Api) -> None:
    """The usual Service in front of dns.py."""
    base = "/api/v1/namespaces/kube-system"
    meta = {"name": "kube-dns", "labels": {"k8s-app": "kube-dns"}}
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    spec = {"clusterIP": DNS_SERVICE_IP, "ports": ports}
    wait("kube-system", lambda: api.get(base))
    api.create(f"{base}/services", {"metadata": meta, "spec": spec})
    subset = {"addresses": [{"ip": CONTROL_PLANE_IP}], "ports": ports}
    api.create(f"{base}/endpoints", {"metadata": meta, "subsets": [subset]})


def base_images() -> list[Path]:
    archives = CACHE / "images"
    archives.mkdir(exist_ok=True)
    pause, busybox = archives / "pause.tar", archives / "busybox.tar"
    if not pause.exists():
        image.Image(PAUSE_IMAGE).add(CACHE / "bin/pause", "/pause").save(
            pause, entrypoint=["/pause"]
        )
    if not busybox.exists():
        image.busybox("local/busybox:1", CACHE / "debian/bin/busybox").save(
            busybox, entrypoint=["sh"]
        )
    return [pause, busybox]


def load_images(archives: Iterable[Path], nodes: list[Node]) -> None:
    for node in nodes:
        node.wait_for_containerd()
    loads = [(archive, node, node.load(archive)) for archive in archives for node in nodes]
    for archive, node, process in loads:
        output = process.communicate()[0]
        if process.returncode:
            raise Trouble(f"{archive} on {node.name}: {output}")


def power(verb: str, name: str, *components: str) -> None:
    """start, stop, restart: programs of a machine, or the whole machine."""
    machine = find(name)
    if components:
        machine.ask(verb, *components)
        return
    if name == CONTROL_PLANE:
        raise Trouble("the control plane's memory is the cluster: stop its components, or `down`")
    if verb in {"stop", "restart"}:
        machine.kill()
    if verb in {"start", "restart"} and not machine.pid():
        machine.boot()
        machine.start()


def status() -> None:
    for machine in [Machine(CONTROL_PLANE), *nodes_defined()]:
        if not machine.pid():
            print(f"{machine.name}: not running")
            continue
        answer = machine.ask("status")
        print(f"{machine.name}: process 1 is {machine.pid()}")
        for name in sorted({*answer["wanted"], *answer["pids"]}):
            state = f"pid {answer['pids'][name]}" if name in answer["pids"] else "not running"
            print(f"  {name:24} {state}")


def down() -> None:
    subprocess.run(["ip", "link", "del", NAME], stderr=subprocess.DEVNULL, env={"PATH": PATH})
    for machine in [*nodes_defined(), Machine(CONTROL_PLANE)]:
        machine.kill()
    Cgroup(NAME).remove()
    with contextlib.suppress(OSError):
        shutil.rmtree(STATE)
    if STATE.exists():
        raise Trouble(f"could not remove all of {STATE}")

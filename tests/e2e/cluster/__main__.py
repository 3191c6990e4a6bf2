"""A real Kubernetes cluster on one machine: etcd, the API server, the controller manager, the
scheduler, cluster DNS, and N nodes, each with a real kubelet, kube-proxy and containerd. No
Docker, no image registry; root is needed.

    python -m tests.e2e.cluster up --nodes 2       start it, wait until every node is Ready
    python -m tests.e2e.cluster kubectl get pods   kubectl, as the cluster's administrator
    python -m tests.e2e.cluster kubeconfig         the path of the administrator's kubeconfig
    python -m tests.e2e.cluster load-image app.tar put an image (image.py makes them) on the nodes
    python -m tests.e2e.cluster exec node-1 -- ls /var/lib/kubelet
    python -m tests.e2e.cluster restart node-1 kubelet
    python -m tests.e2e.cluster stop node-2        power a node off; `start node-2` boots it
    python -m tests.e2e.cluster status             machines and processes
    python -m tests.e2e.cluster down               end everything, remove everything

The programs are those of Kubernetes $KUBE (1.37, or another folder of tests/e2e/programs/kubernetes), built if need
be; where KUBEBUILDER_ASSETS names a folder with kube-apiserver, etcd, kubectl or any other of them (kubelet,
kube-controller-manager, kube-scheduler, kube-proxy), those are used in their place.
K8S_CLUSTER: 0 (the default) to 9, to have several clusters side by side; the addresses below are those of 0.
K8S_CACHE: where the programs are. K8S_STATE: where the cluster is (default /var/tmp/k8s-e2e-0;
each machine's logs are in its log/). K8S_TIMEOUT: seconds that `up` waits for each thing (120).

The control plane and each node are a "machine": namespaces whose process 1 is ours, and a
cgroup. A machine has /var/lib, /var/log, /run and /dev of its own, so every kubelet uses the
standard paths and sees only its own. The control plane's network holds a bridge that every
machine and the host are plugged into, and routes between the nodes' pods:

    host  10.89.0.254 ---+--- 10.89.0.1   control plane (API server on :6443)
                         +--- 10.89.0.11  node-1, pods 10.244.1.0/24
                         +--- 10.89.0.12  node-2, pods 10.244.2.0/24

Outside the state folder the host keeps nothing: one interface and three routes while it runs.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from tests.e2e.cluster import verbs
from tests.e2e.cluster.settings import Trouble, program


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m tests.e2e.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = top.add_subparsers(dest="verb", required=True)
    verb = kinds.add_parser("up", help="start a cluster")
    verb.add_argument("--nodes", type=int, default=1, help="how many nodes (1 to 99; default 1)")
    verb.add_argument("--config", type=Path, help="a JSON file: see verbs.up and Node.prepare")
    for name, text in (
        ("build", "fetch and build the programs"),
        ("down", "end the cluster"),
        ("status", "list the processes"),
        ("kubeconfig", "print the kubeconfig's path"),
    ):
        kinds.add_parser(name, help=text)
    verb = kinds.add_parser("load-image", help="import image archives")
    verb.add_argument("archives", nargs="+", type=Path)
    for name in ("start", "stop", "restart"):
        verb = kinds.add_parser(name, help=f"{name} a node, or programs of a machine")
        verb.add_argument("machine")
        verb.add_argument("components", nargs="*")
    verb = kinds.add_parser("exec", help="run a command on a machine")
    verb.add_argument("machine")
    verb.add_argument("command", nargs=argparse.REMAINDER)
    verb = kinds.add_parser("kubectl", help="run kubectl", add_help=False)
    verb.add_argument("command", nargs=argparse.REMAINDER)
    return top


def main() -> None:
    if sys.argv[1:2] == ["kubectl"]:  # whose own flags are not for us to read
        os.environ["KUBECONFIG"] = str(verbs.kubeconfig())
        os.execv(program("kubectl"), ["kubectl", *sys.argv[2:]])
    arguments = parser().parse_args()
    match arguments.verb:
        case "up":
            names = [f"node-{number}" for number in range(1, arguments.nodes + 1)]
            config = {"nodes": [{"name": name} for name in names]}
            if arguments.config:
                config = json.loads(arguments.config.read_text())
            verbs.up(config)
        case "build":
            verbs.build()
        case "down":
            verbs.down()
        case "status":
            verbs.status()
        case "kubeconfig":
            print(verbs.kubeconfig())
        case "load-image":
            running = [node for node in verbs.nodes_defined() if node.pid()]
            verbs.load_images(arguments.archives, running)
        case "exec":
            command = arguments.command[arguments.command[:1] == ["--"] :]
            argv = verbs.find(arguments.machine).command(*command)
            os.execvp(argv[0], argv)
        case verb:
            verbs.power(verb, arguments.machine, *arguments.components)


if __name__ == "__main__":
    try:
        main()
    except Trouble as error:
        raise SystemExit(str(error)) from None

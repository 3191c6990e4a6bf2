"""The agents with other components, flags and device files, for a while."""

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.e2e.cluster import verbs
from tests.e2e.cluster.settings import Trouble
from tests.e2e.world import NAMESPACE, World, shipped, until

DEFAULT = ("watch", "mps")  # what the cluster of the tests has beyond the default manifests
Objects = list[Any]


@contextmanager
def components(
    cluster: World,
    *names: str,
    agent_args: Sequence[str] = (),
    edit: Callable[[Objects], None] = lambda _: None,
) -> Iterator[None]:
    """The cluster with these components as well; agent_args: added flags of the agent; edit changes the
    manifests in place. Afterwards the cluster is as it was."""
    listing = json.loads(shipped(*DEFAULT, *names))
    for each in listing["items"]:
        if (each["kind"], each["metadata"]["name"]) == ("DaemonSet", "lockstep-agent"):
            each["spec"]["template"]["spec"]["containers"][0]["args"] += agent_args
    edit(listing["items"])
    usual = json.loads(shipped(*DEFAULT))
    mine = {_key(each) for each in listing["items"]} - {_key(each) for each in usual["items"]}
    try:
        apply(cluster, listing)
        yield
    finally:
        for kind, name, namespace in mine:
            where = ("-n", namespace) if namespace else ()
            cluster.kubectl("delete", kind, name, *where, "--ignore-not-found", "--wait=true")
        apply(cluster, usual)


def apply(cluster: World, listing: Any) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(listing))
    for each in ("daemonset/lockstep-agent", "deployment/lockstep-central"):
        cluster.kubectl("-n", NAMESPACE, "rollout", "status", each, "--timeout=120s")
    cluster.forget_centre()
    until("every agent's report", lambda: all(v.topology.gpus for v in cluster.views()), 60)


def _key(item: Any) -> tuple[str, str, str]:
    return item["kind"], item["metadata"]["name"], item["metadata"].get("namespace", "")


def on(node: str, *argv: object) -> str:
    """Runs a program on a node's machine."""
    done = subprocess.run(verbs.find(node).command(*argv), capture_output=True, text=True)
    if done.returncode:
        raise Trouble(f"{node}: {' '.join(map(str, argv))}: {done.stderr}")
    return done.stdout


@contextmanager
def no_agent(cluster: World, node: str) -> Iterator[None]:
    """The node without its agent while the block lasts."""
    cluster.kubectl("label", "node", node, "lockstep.dev/agent=false", "--overwrite")
    try:
        until("the agent to leave", lambda: node not in _nodes_with_agents(cluster), 60)
        yield
    finally:
        cluster.kubectl("label", "node", node, "lockstep.dev/agent-")
        until("the agent to be back", lambda: cluster.agent_on(node)["status"]["phase"], 60)


def _nodes_with_agents(cluster: World) -> set[str]:
    return {each["spec"].get("nodeName", "") for each in cluster.system_pods("lockstep-agent")}

"""Small random clusters as raw JSON, full of pods with rules about each other."""

import random
from typing import Any

from tests.central.kube.oracle import REQUIRED, World

Json = dict[str, Any]
HOST, ZONE, CELL = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/cell"
SPACES = {
    "one": {"kubernetes.io/metadata.name": "one", "team": "red"},
    "two": {"kubernetes.io/metadata.name": "two", "team": "blue"},
    "three": {"kubernetes.io/metadata.name": "three", "team": "blue", "quiet": "yes"},
}


class Maker:
    """old: only what Kubernetes 1.20 knows."""

    def __init__(self, seed: int, *, old: bool = False) -> None:
        self.dice = random.Random(seed)
        self.old = old
        self.made = 0

    def world(self, nodes: int, pods: int) -> World:
        world = World(namespaces={name: dict(labels) for name, labels in SPACES.items()})
        for number in range(nodes):
            node = self.node(f"n{number}")
            world.nodes[node["metadata"]["name"]] = node
        for _ in range(pods):
            pod = self.pod(rules=0.3)
            pod["spec"]["nodeName"] = self.dice.choice(sorted(world.nodes))
            pod["status"]["phase"] = self.dice.choice(("Running",) * 6 + ("Succeeded", "Pending"))
            if not self.old and self.chance(0.1):
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            world.pods[pod["metadata"]["uid"]] = pod
        return world

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def node(self, name: str) -> Json:
        labels = {HOST: name}
        if self.chance(0.9):
            labels[ZONE] = self.dice.choice(("z1", "z2", "z3"))
        if self.chance(0.7):
            labels[CELL] = self.dice.choice(("c1", "c2"))
        if self.chance(0.5):
            labels["disk"] = self.dice.choice(("ssd", "hdd"))
        spec: Json = {}
        if self.chance(0.15):
            spec["taints"] = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]
        if self.chance(0.1):
            spec["unschedulable"] = True
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {
                "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    def pod(self, rules: float = 1.0) -> Json:
        """rules: the share of pods that have any."""
        self.made += 1
        name = f"p{self.made}"
        container: Json = {"name": "main", "image": "none"}
        spec: Json = {"schedulerName": "lockstep", "containers": [container]}
        labels = {"app": self.dice.choice("abc")}
        if self.chance(0.5):
            labels["tier"] = self.dice.choice(("front", "back"))
        if self.chance(rules):
            self._rules(spec, container)
        return {
            "metadata": {
                "name": name,
                "namespace": self.dice.choice(sorted(SPACES)),
                "uid": f"uid-{name}",
                "labels": labels,
            },
            "spec": spec,
            "status": {"phase": "Pending"},
        }

    def _rules(self, spec: Json, container: Json) -> None:
        affinity: Json = {}
        if self.chance(0.4):
            affinity["podAffinity"] = {REQUIRED: self._terms()}
        if self.chance(0.4):
            affinity["podAntiAffinity"] = {REQUIRED: self._terms()}
        if self.chance(0.2):
            terms = [{"matchExpressions": [self._expression("disk", ("ssd", "hdd"))]}]
            affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
        if affinity:
            spec["affinity"] = affinity
        if self.chance(0.15):
            spec["nodeSelector"] = {"disk": "ssd"}
        if self.chance(0.4):
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        if self.chance(0.4):
            keys = self.dice.sample((HOST, ZONE, CELL), self.dice.choice((1, 1, 2)))
            spec["topologySpreadConstraints"] = [self._spread(key) for key in keys]
        if self.chance(0.3):
            ports = [self._port() for _ in range(self.dice.choice((1, 1, 2)))]
            container["ports"] = list({str(sorted(port.items())): port for port in ports}.values())

    def _port(self) -> Json:
        port: Json = {"hostPort": self.dice.choice((80, 443)), "containerPort": 1}
        port["containerPort"] = port["hostPort"]
        port["protocol"] = self.dice.choice(("TCP", "TCP", "UDP"))
        if self.chance(0.4):
            port["hostIP"] = self.dice.choice(("10.0.0.1", "10.0.0.2", "0.0.0.0"))
        return port

    def _terms(self) -> list[Json]:
        return [self._term() for _ in range(self.dice.choice((1, 1, 1, 2)))]

    def _term(self) -> Json:
        term: Json = {"topologyKey": self.dice.choice((HOST, ZONE, CELL))}
        if self.chance(0.95):
            term["labelSelector"] = self._selector()
        if self.chance(0.3):
            term["namespaces"] = self.dice.sample(sorted(SPACES), self.dice.choice((1, 2)))
        if not self.old and self.chance(0.25):
            term["namespaceSelector"] = self.dice.choice(
                ({}, {"matchLabels": {"team": "blue"}}, {"matchLabels": {"team": "green"}})
            )
        if not self.old and "labelSelector" in term and self.chance(0.2):
            term[self.dice.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["tier"]
        return term

    def _spread(self, key: str) -> Json:
        spread: Json = {
            "topologyKey": key,
            "maxSkew": self.dice.choice((1, 1, 2, 3)),
            "whenUnsatisfiable": self.dice.choice(("DoNotSchedule",) * 4 + ("ScheduleAnyway",)),
        }
        if self.chance(0.95):
            spread["labelSelector"] = self._selector()
        if self.old:
            return spread
        if self.chance(0.2) and spread["whenUnsatisfiable"] == "DoNotSchedule":
            spread["minDomains"] = self.dice.choice((1, 2, 3, 4))
        if self.chance(0.2):
            spread["nodeAffinityPolicy"] = self.dice.choice(("Honor", "Ignore"))
        if self.chance(0.3):
            spread["nodeTaintsPolicy"] = self.dice.choice(("Honor", "Ignore"))
        if "labelSelector" in spread and self.chance(0.2):
            spread["matchLabelKeys"] = ["tier"]
        return spread

    def _selector(self) -> Json:
        selector: Json = {}
        if self.chance(0.6):
            selector["matchLabels"] = {"app": self.dice.choice("abc")}
        if self.chance(0.4):
            selector["matchExpressions"] = [self._expression("tier", ("front", "back"))]
        return selector

    def _expression(self, key: str, values: tuple[str, ...]) -> Json:
        operator = self.dice.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        if operator in ("In", "NotIn"):
            return {"key": key, "operator": operator, "values": [self.dice.choice(values)]}
        return {"key": key, "operator": operator}

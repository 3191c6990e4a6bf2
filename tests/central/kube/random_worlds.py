"""Small random clusters as raw JSON, with many pods that have affinity rules."""

import random

from central.model.json_types import Json
from tests.central.kube.naive_filters import REQUIRED, World

HOST, ZONE, CELL = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/cell"
SPACES = {
    "one": {"kubernetes.io/metadata.name": "one", "team": "red"},
    "two": {"kubernetes.io/metadata.name": "two", "team": "blue"},
    "three": {"kubernetes.io/metadata.name": "three", "team": "blue", "quiet": "yes"},
}


DISK = "disk.example.com"
CLASSES: list[Json] = [
    {"name": "fast", "provisioner": DISK, "volumeBindingMode": "WaitForFirstConsumer"},
    {
        "name": "zoned",
        "provisioner": DISK,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [
            {"matchLabelExpressions": [{"key": ZONE, "values": ["z1", "z2"]}]},
            {"matchLabelExpressions": [{"key": CELL, "values": ["c1"]}]},
        ],
    },
    {"name": "now", "provisioner": DISK, "volumeBindingMode": "Immediate"},
    {
        "name": "local",
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
]


class Maker:
    """old: only fields of Kubernetes 1.20."""

    def __init__(self, seed: int, *, old: bool = False) -> None:
        self.dice = random.Random(seed)
        self.old = old
        self.made = 0

    def world(self, nodes: int, pods: int) -> World:
        world = World(namespaces={name: dict(labels) for name, labels in SPACES.items()})
        for number in range(nodes):
            node = self.node(f"n{number}")
            world.nodes[node["metadata"]["name"]] = node
        for made in CLASSES:
            rest = {key: value for key, value in made.items() if key != "name"}
            world.classes[made["name"]] = {"metadata": {"name": made["name"]}, **rest}
        for number in range(self.dice.choice((0, 0, 2, 5))):
            self._free_volume(world, f"free-{self.made + number}")
        for name in world.nodes:
            if self.chance(0.5):
                limit: Json = {"name": DISK, "nodeID": name, "topologyKeys": None}
                if self.chance(0.8):
                    limit["allocatable"] = {"count": self.dice.choice((1, 2))}
                world.csinodes[name] = {"metadata": {"name": name}, "spec": {"drivers": [limit]}}
        if not self.old and self.chance(0.4):
            self.capacities(world)
        for _ in range(pods):
            pod = self.pod(rules=0.3)
            if self.chance(0.3):
                self.claim(world, pod)
            pod["spec"]["nodeName"] = self.dice.choice(sorted(world.nodes))
            pod["status"]["phase"] = self.dice.choice(("Running",) * 6 + ("Succeeded", "Pending"))
            if not self.old and self.chance(0.1):
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            world.pods[pod["metadata"]["uid"]] = pod
        return world

    def capacities(self, world: World) -> None:
        """A driver that tells how much room there is, and where."""
        world.csidrivers[DISK] = {"metadata": {"name": DISK}, "spec": {"storageCapacity": True}}
        for number, name in enumerate([*world.nodes, *world.nodes]):
            room: Json = {
                "metadata": {"name": f"room-{number}", "namespace": "default"},
                "storageClassName": self.dice.choice(("fast", "zoned")),
                "nodeTopology": self.dice.choice(
                    (
                        {"matchLabels": {HOST: name}},
                        {
                            "matchExpressions": [
                                {"key": HOST, "operator": "NotIn", "values": [name]}
                            ]
                        },
                        {"matchExpressions": [{"key": ZONE, "operator": "Exists"}]},
                    )
                ),
                "capacity": self.dice.choice(("0Gi", "1Gi", "9Gi")),
            }
            if self.chance(0.2):
                room["maximumVolumeSize"] = self.dice.choice(("1Gi", "5Gi"))
            if self.chance(0.1):
                del room["nodeTopology"]
            world.capacities.append(room)

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

    def claim(self, world: World, pod: Json) -> None:
        """Gives the pod a claim of its own, in any state; now and then another pod's, or none that
        there is."""
        space = pod["metadata"]["namespace"]
        name = f"c-{pod['metadata']['name']}"
        shared = [
            key
            for key, claim in sorted(world.claims.items())
            if key[0] == space
            and ("ReadWriteOncePod" in claim["spec"]["accessModes"] or self.chance(0.3))
        ]
        if shared and self.chance(0.5):
            name = self.dice.choice(shared)[1]
        elif self.chance(0.93):
            world.claims[(space, name)] = self._claim(world, space, name)
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        pod["spec"].setdefault("volumes", []).append(volume)

    def _claim(self, world: World, space: str, name: str) -> Json:
        made: Json = {
            "metadata": {"name": name, "namespace": space, "annotations": {}},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": self.dice.choice(("1Gi", "1Gi", "5Gi"))}},
                "storageClassName": self.dice.choice(
                    ("fast", "fast", "zoned", "now", "local", "local")
                ),
            },
        }
        if self.chance(0.6):
            made["spec"]["volumeName"] = f"v-{name}"
            made["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
            world.volumes[f"v-{name}"] = self._volume(f"v-{name}")
            nfs = "nfs" in world.volumes[f"v-{name}"]["spec"]
            if nfs and not self.old and self.chance(0.7):
                made["spec"]["accessModes"] = ["ReadWriteOncePod"]
        elif self.chance(0.2) and made["spec"]["storageClassName"] == "local":
            kept = [v for n, v in sorted(world.volumes.items()) if n.startswith("free")]
            if kept and self.chance(0.5):
                whose = {"namespace": space, "name": name}
                self.dice.choice(kept)["spec"].setdefault("claimRef", whose)
        elif self.chance(0.1):
            made["spec"]["selector"] = {"matchLabels": {"disk": "fast"}}
        elif self.chance(0.2):
            chosen = self.dice.choice(sorted(world.nodes))
            made["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = chosen
        return made

    def _volume(self, name: str) -> Json:
        spec: Json = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
        meta: Json = {"name": name}
        if self.chance(0.6):
            spec["csi"] = {"driver": DISK, "volumeHandle": name}
        else:
            spec["nfs"] = {"server": "none", "path": "/"}
        if self.chance(0.4):
            term = {"key": ZONE, "operator": "In", "values": [self.dice.choice(("z1", "z2"))]}
            spec["nodeAffinity"] = {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
            }
        elif self.chance(0.4):
            meta["labels"] = {ZONE: self.dice.choice(("z1", "z3", "z1__z2"))}
        return {"metadata": meta, "spec": spec}

    def _free_volume(self, world: World, name: str) -> None:
        """One that nobody has, of one node or several."""
        key, values = self.dice.choice(
            ((HOST, tuple(world.nodes)), (HOST, tuple(world.nodes)), (ZONE, ("z1", "z2")))
        )
        term = {"key": key, "operator": "In", "values": [self.dice.choice(values)]}
        spec: Json = {
            "capacity": {"storage": self.dice.choice(("1Gi", "5Gi", "9Gi"))},
            "accessModes": self.dice.choice(
                (["ReadWriteOnce"], ["ReadOnlyMany", "ReadWriteOnce"], ["ReadOnlyMany"])
            ),
            "storageClassName": self.dice.choice(("local", "local", "zoned")),
            "hostPath": {"path": f"/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        }
        if self.chance(0.1):
            spec["volumeMode"] = "Block"
        meta: Json = {"name": name, "labels": {"disk": self.dice.choice(("fast", "slow"))}}
        phase = self.dice.choice(("Available",) * 5 + ("Released",))
        world.volumes[name] = {"metadata": meta, "spec": spec, "status": {"phase": phase}}

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

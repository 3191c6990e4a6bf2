"""The filters of kube-scheduler, written as simply as possible: one pod, one node, raw JSON, loops. They
share nothing with the code under test, and tests/e2e compares them with kube-scheduler itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from central.model.json_types import Json

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass
class World:
    nodes: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)  # by uid; those with a nodeName count
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)  # labels
    claims: dict[tuple[str, str], Json] = field(default_factory=dict)
    volumes: dict[str, Json] = field(default_factory=dict)
    classes: dict[str, Json] = field(default_factory=dict)
    csinodes: dict[str, Json] = field(default_factory=dict)
    csidrivers: dict[str, Json] = field(default_factory=dict)
    capacities: list[Json] = field(default_factory=list)

    def there(self) -> list[tuple[Json, Json]]:
        """(pod, node) of all pods that run on a node."""
        return [
            (pod, self.nodes[pod["spec"]["nodeName"]])
            for pod in self.pods.values()
            if pod["spec"].get("nodeName") in self.nodes
            and pod["status"]["phase"] not in ("Succeeded", "Failed")
        ]


def feasible(world: World, pod: Json) -> set[str]:
    return {name for name, node in world.nodes.items() if not refusal(world, pod, node)}


def refusal(world: World, pod: Json, node: Json) -> str:
    """The first filter that rejects the node, in kube-scheduler's order."""
    if node["spec"].get("unschedulable") and not tolerated(
        pod, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return "NodeUnschedulable"
    if not taints_tolerated(pod, node):
        return "TaintToleration"
    if not node_affine(pod, node):
        return "NodeAffinity"
    for filtering in (ports, one_pod, attach, claims, zones, spread, near, apart, avoided):
        if not filtering(world, pod, node):
            return filtering.__name__
    return ""


# --- nodes ---------------------------------------------------------------------


def tolerated(pod: Json, taint: Json) -> bool:
    for toleration in pod["spec"].get("tolerations", []):
        if toleration.get("effect") and toleration["effect"] != taint["effect"]:
            continue
        if toleration.get("key") and toleration["key"] != taint["key"]:
            continue
        if toleration.get("operator") == "Exists":
            return True
        if toleration.get("key") and toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def taints_tolerated(pod: Json, node: Json) -> bool:
    for taint in node["spec"].get("taints", []):
        if taint["effect"] in ("NoSchedule", "NoExecute") and not tolerated(pod, taint):
            return False
    return True


def node_affine(pod: Json, node: Json) -> bool:
    labels = node["metadata"]["labels"]
    for key, value in pod["spec"].get("nodeSelector", {}).items():
        if labels.get(key) != value:
            return False
    required = (pod["spec"].get("affinity") or {}).get("nodeAffinity", {}).get(REQUIRED)
    if required is None:
        return True
    for term in required["nodeSelectorTerms"]:
        if term.get("matchExpressions") and expressions(term["matchExpressions"], labels):
            return True
    return False


def expressions(every: list[Json], labels: Mapping[str, str]) -> bool:
    for one in every:
        key, operator, values = one["key"], one["operator"], one.get("values", [])
        if operator == "In" and not (key in labels and labels[key] in values):
            return False
        if operator == "NotIn" and key in labels and labels[key] in values:
            return False
        if operator == "Exists" and key not in labels:
            return False
        if operator == "DoesNotExist" and key in labels:
            return False
    return True


def selected(selector: Json | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    return expressions(selector.get("matchExpressions", []), labels)


def labels_of(pod: Json) -> dict[str, str]:
    labels: dict[str, str] = pod["metadata"].get("labels", {})
    return labels


# --- ports ---------------------------------------------------------------------


def host_ports(pod: Json) -> list[tuple[str, str, int]]:
    found = []
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", []):
            if port.get("hostPort"):
                address = port.get("hostIP") or "0.0.0.0"
                found.append((address, port.get("protocol") or "TCP", port["hostPort"]))
    return found


def ports(world: World, pod: Json, node: Json) -> bool:
    for other, where in world.there():
        if where is not node:
            continue
        for address, protocol, number in host_ports(pod):
            for address2, protocol2, number2 in host_ports(other):
                same = protocol == protocol2 and number == number2
                if same and (address == address2 or "0.0.0.0" in (address, address2)):
                    return False
    return True


# --- affinity --------------------------------------------------------------------


def terms_of(pod: Json, kind: str) -> list[Json]:
    terms: list[Json] = pod["spec"].get("affinity", {}).get(kind, {}).get(REQUIRED, [])
    return terms


def term_matches(world: World, owner: Json, term: Json, other: Json) -> bool:
    """Whether the one pod's term selects the other."""
    namespace = other["metadata"]["namespace"]
    inside = namespace in term.get("namespaces", [])
    if "namespaceSelector" in term:
        about = world.namespaces.get(namespace, {"kubernetes.io/metadata.name": namespace})
        inside = inside or selected(term["namespaceSelector"], about)
    elif not term.get("namespaces"):
        inside = namespace == owner["metadata"]["namespace"]
    if not inside or not selected(term.get("labelSelector"), labels_of(other)):
        return False
    own = labels_of(owner)
    for key in term.get("matchLabelKeys", []):
        if key in own and labels_of(other).get(key) != own[key]:
            return False
    return all(
        labels_of(other).get(key) != own[key]
        for key in term.get("mismatchLabelKeys", [])
        if key in own
    )


def same_domain(one: Json, other: Json, key: str) -> bool:
    mine, theirs = one["metadata"]["labels"], other["metadata"]["labels"]
    return key in mine and key in theirs and mine[key] == theirs[key]


def near(world: World, pod: Json, node: Json) -> bool:
    terms = terms_of(pod, "podAffinity")
    if not terms:
        return True
    for term in terms:
        if term["topologyKey"] not in node["metadata"]["labels"]:
            return False
    matching = [
        where
        for other, where in world.there()
        if all(term_matches(world, pod, term, other) for term in terms)
    ]
    if all(
        any(same_domain(node, where, term["topologyKey"]) for where in matching) for term in terms
    ):
        return True
    anywhere = any(
        term["topologyKey"] in where["metadata"]["labels"] for where in matching for term in terms
    )
    return not anywhere and all(term_matches(world, pod, term, pod) for term in terms)


def apart(world: World, pod: Json, node: Json) -> bool:
    for term in terms_of(pod, "podAntiAffinity"):
        for other, where in world.there():
            if same_domain(node, where, term["topologyKey"]) and term_matches(
                world, pod, term, other
            ):
                return False
    return True


def avoided(world: World, pod: Json, node: Json) -> bool:
    for other, where in world.there():
        for term in terms_of(other, "podAntiAffinity"):
            if same_domain(node, where, term["topologyKey"]) and term_matches(
                world, other, term, pod
            ):
                return False
    return True


# --- volumes ----------------------------------------------------------------------


def claims_of(world: World, pod: Json) -> list[Json | None]:
    found = []
    for volume in pod["spec"].get("volumes") or []:
        if "persistentVolumeClaim" in volume:
            name = volume["persistentVolumeClaim"]["claimName"]
            found.append(world.claims.get((pod["metadata"]["namespace"], name)))
    return found


def is_bound(claim: Json) -> bool:
    annotations = claim["metadata"].get("annotations") or {}
    return bool(claim["spec"].get("volumeName")) and (
        "pv.kubernetes.io/bind-completed" in annotations
    )


def claims(world: World, pod: Json, node: Json) -> bool:
    found: set[str] = set()
    for claim in claims_of(world, pod):
        if claim is None or "deletionTimestamp" in claim["metadata"]:
            return False
        if is_bound(claim):
            volume = world.volumes.get(claim["spec"]["volumeName"])
            if volume is None or not used_from(volume, node):
                return False
            continue
        made = world.classes.get(claim["spec"].get("storageClassName") or "")
        if made is None or made.get("volumeBindingMode") != "WaitForFirstConsumer":
            return False
        chosen = (claim["metadata"].get("annotations") or {}).get(
            "volume.kubernetes.io/selected-node"
        )
        if not chosen and (name := there_is(world, claim, node, found)):
            found.add(name)
            continue
        if made["provisioner"] == "kubernetes.io/no-provisioner":
            return False
        if chosen and chosen != node["metadata"]["name"]:
            return False
        allowed = made.get("allowedTopologies") or []
        if allowed and not any(
            all(
                node["metadata"]["labels"].get(one["key"]) in one["values"]
                for one in term["matchLabelExpressions"]
            )
            for term in allowed
        ):
            return False
        if not has_room(world, claim, made, node):
            return False
    return True


def used_from(volume: Json, node: Json) -> bool:
    affinity = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return affinity is None or any(
        expressions(term["matchExpressions"], node["metadata"]["labels"])
        for term in affinity["nodeSelectorTerms"]
    )


def there_is(world: World, claim: Json, node: Json, found: set[str]) -> str:
    """The smallest matching volume; the one that is reserved for the claim, if there is one."""
    wanted, best = claim["spec"], ""
    for name, volume in sorted(world.volumes.items()):
        has, kept = volume["spec"], volume["spec"].get("claimRef")
        if name in found or giga(has["capacity"]) < giga(wanted["resources"]["requests"]):
            continue
        if "deletionTimestamp" in volume["metadata"]:
            continue
        if has.get("volumeMode", "Filesystem") != wanted.get("volumeMode", "Filesystem"):
            continue
        if kept is not None:
            mine = claim["metadata"]
            if (kept["namespace"], kept["name"]) == (mine["namespace"], mine["name"]):
                return name if used_from(volume, node) else ""
            continue
        if (volume.get("status") or {}).get("phase") != "Available":
            continue
        if has.get("storageClassName", "") != wanted["storageClassName"]:
            continue
        if "selector" in wanted and not selected(
            wanted["selector"], volume["metadata"].get("labels") or {}
        ):
            continue
        if not set(wanted["accessModes"]) <= set(has["accessModes"]):
            continue
        if used_from(volume, node) and (
            not best or giga(has["capacity"]) < giga(world.volumes[best]["spec"]["capacity"])
        ):
            best = name
    return best


def giga(amounts: Json) -> int:
    return int(amounts["storage"].removesuffix("Gi"))


def has_room(world: World, claim: Json, made: Json, node: Json) -> bool:
    driver = world.csidrivers.get(made["provisioner"])
    if driver is None or not driver["spec"].get("storageCapacity"):
        return True
    asked = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
    labels = node["metadata"]["labels"]
    for room in world.capacities:
        most = room.get("maximumVolumeSize", room.get("capacity"))
        if room["storageClassName"] != claim["spec"]["storageClassName"] or most is None:
            continue
        where = room.get("nodeTopology")
        if where is None or int(most.removesuffix("Gi")) < asked:
            continue
        named = all(labels.get(k) == v for k, v in where.get("matchLabels", {}).items())
        if named and expressions(where.get("matchExpressions", []), labels):
            return True
    return False


def zones(world: World, pod: Json, node: Json) -> bool:
    keys = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
    labels = node["metadata"]["labels"]
    if not any(key in labels for key in keys):
        return True
    for claim in claims_of(world, pod):
        if claim is not None and is_bound(claim):
            volume = world.volumes.get(claim["spec"]["volumeName"]) or {"metadata": {}}
            for key, value in (volume["metadata"].get("labels") or {}).items():
                if key in keys and labels.get(key) not in value.split("__"):
                    return False
    return True


def one_pod(world: World, pod: Json, node: Json) -> bool:
    for claim in claims_of(world, pod):
        if claim is not None and "ReadWriteOncePod" in claim["spec"].get("accessModes", []):
            for other, _ in world.there():
                if any(used is claim for used in claims_of(world, other)):
                    return False
    return True


def driver_of(world: World, claim: Json | None) -> str:
    if claim is None:
        return ""
    volume = world.volumes.get(claim["spec"].get("volumeName") or "")
    if volume is not None:
        driver: str = (volume["spec"].get("csi") or {}).get("driver", "")
        return driver
    made = world.classes.get(claim["spec"].get("storageClassName") or "")
    provisioner: str = made["provisioner"] if made else ""
    return provisioner


def attach(world: World, pod: Json, node: Json) -> bool:
    csinode = world.csinodes.get(node["metadata"]["name"]) or {"spec": {"drivers": []}}
    for driver in csinode["spec"]["drivers"] or []:
        most = (driver.get("allocatable") or {}).get("count")
        if most is None:
            continue
        there = {
            id(claim)  # a volume is attached once, however many pods use it
            for other, where in world.there()
            if where is node
            for claim in claims_of(world, other)
            if driver_of(world, claim) == driver["name"]
        }
        mine = {id(c) for c in claims_of(world, pod) if c and driver_of(world, c) == driver["name"]}
        if mine and len(there | mine) > most:
            return False
    return True


# --- spread ----------------------------------------------------------------------


def spread(world: World, pod: Json, node: Json) -> bool:
    constraints = [
        constraint
        for constraint in pod["spec"].get("topologySpreadConstraints", [])
        if constraint["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    for constraint in constraints:
        key = constraint["topologyKey"]
        if key not in node["metadata"]["labels"]:
            return False
        counts: dict[str, int] = {}
        for other_node in world.nodes.values():
            if spread_counts(pod, constraint, constraints, other_node):
                value = other_node["metadata"]["labels"][key]
                counts[value] = counts.get(value, 0) + peers_on(world, pod, constraint, other_node)
        fewest = min(counts.values(), default=0)
        if len(counts) < (constraint.get("minDomains") or 1):
            fewest = 0
        there = counts.get(node["metadata"]["labels"][key], 0)
        itself = 1 if spread_matches(pod, constraint, pod) else 0
        if there + itself - fewest > constraint["maxSkew"]:
            return False
    return True


def spread_counts(pod: Json, constraint: Json, every: list[Json], node: Json) -> bool:
    for other in every:
        if other["topologyKey"] not in node["metadata"]["labels"]:
            return False
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not node_affine(pod, node):
        return False
    return constraint.get("nodeTaintsPolicy", "Ignore") != "Honor" or taints_tolerated(pod, node)


def peers_on(world: World, pod: Json, constraint: Json, node: Json) -> int:
    count = 0
    if selects_everything(pod, constraint):
        return 0
    for other, where in world.there():
        if where is not node or "deletionTimestamp" in other["metadata"]:
            continue
        if other["metadata"]["namespace"] != pod["metadata"]["namespace"]:
            continue
        if spread_matches(pod, constraint, other):
            count += 1
    return count


def selects_everything(pod: Json, constraint: Json) -> bool:
    given = constraint.get("labelSelector")
    own = any(key in labels_of(pod) for key in constraint.get("matchLabelKeys", []))
    return given is not None and not any(given.values()) and not own


def spread_matches(pod: Json, constraint: Json, other: Json) -> bool:
    own = labels_of(pod)
    for key in constraint.get("matchLabelKeys", []):
        if key in own and labels_of(other).get(key) != own[key]:
            return False
    return selected(constraint.get("labelSelector"), labels_of(other))

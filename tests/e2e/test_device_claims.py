"""Device claims on a real API server, with its own controller for claims and the shipped rights: no kubelets are
needed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agent.machine import capture
from agent.machine.survey import survey
from central.kube.decode.device_claim_decoder import decode_slice
from central.kube.transport.http_client import Client, connect
from central.kube.write.pod_requests import Refused
from central.kube.write.slice_writer import SliceWriter
from central.model.device_claims import SliceSeen
from central.model.json_types import Json
from central.scheduler.inventory.cluster_node import ClusterNode
from central.server.published_nodes.published_devices import slices_of
from protos.names import DRA_DRIVER
from protos.topology import Grant
from tests.benchmarks import plane
from tests.benchmarks.plane import Plane
from tests.central.server.published_nodes.test_published_devices import CAPTURES, sick
from tests.central.server.published_nodes.test_published_devices import node as published_node
from tests.central.simulator.device_objects import (
    DRIVER,
    asks,
    claiming,
    device_class,
    devices,
    resource_claim,
    template,
)
from tests.e2e.cluster.plane import NATIVE_GANGS
from tests.e2e.cluster.settings import KUBE, ROOT, program
from tests.e2e.world import native_podgroup
from tests.fakes.eventually import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/lockstep-system/serviceaccounts"


def post(client: Client, path: str, body: Json) -> Json:
    reply = client.request("POST", path, json.dumps(body).encode(), "application/json")
    assert reply.ok, reply.body
    found: Json = reply.json()
    return found


def group_flags(*, api: bool = False) -> list[str]:
    """What serves PodGroups of scheduling.k8s.io, and claims for them, where this Kubernetes has both."""
    if KUBE not in NATIVE_GANGS:
        return []
    gates = [f"{gate}=true" for gate in ("GenericWorkload", "DRAWorkloadResourceClaims")]
    version = f"--runtime-config=scheduling.k8s.io/{NATIVE_GANGS[KUBE][0]}=true"
    return ["--feature-gates=" + ",".join(gates), *([version] if api else [])]


@pytest.fixture(scope="module")
def server() -> Iterator[Plane]:
    with plane.running("--authorization-mode=RBAC", *group_flags(api=True)) as made:
        post(made.client, "/api/v1/namespaces", {"metadata": {"name": "lockstep-system"}})
        post(made.client, ACCOUNTS, {"metadata": {"name": "lockstep-central"}})
        for each in yaml.safe_load_all((ROOT / "daemonset" / "rbac.yaml").read_text()):
            if each["kind"].startswith("ClusterRole"):
                post(made.client, f"{RBAC}/{each['kind'].lower()}s", each)
            elif each["kind"].startswith("Role"):
                space = f"namespaces/{each['metadata']['namespace']}"
                post(made.client, f"{RBAC}/{space}/{each['kind'].lower()}s", each)
        for name in "ab":
            ready_node(made.client, name)
            post(made.client, f"{RESOURCES}/resourceslices", devices(name, 2, model="h100"))
        config = [{"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}]
        post(made.client, f"{RESOURCES}/deviceclasses", device_class(config=config))
        path = f"{RESOURCES}/namespaces/default/resourceclaimtemplates"
        chosen = f'device.attributes["{DRIVER}"].model == "h100"'
        post(
            made.client,
            path,
            template("one", asks(1, chosen, tolerations=[{"operator": "Exists"}])),
        )
        with programs(made):
            yield made


def ready_node(client: Client, name: str) -> None:
    post(client, "/api/v1/nodes", {"metadata": {"name": name}})
    size = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": size, "capacity": size, "conditions": conditions}
    body, kind = json.dumps({"status": status}).encode(), "application/merge-patch+json"
    assert client.request("PATCH", f"/api/v1/nodes/{name}/status", body, kind).ok


class programs:  # noqa: N801  as a function
    """The scheduler with its own rights, and the controller for claims."""

    def __init__(self, made: Plane) -> None:
        token = post(made.client, f"{ACCOUNTS}/lockstep-central/token", {"spec": {}})
        config = json.loads(made.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token["status"]["token"]}
        own = made.folder / "scheduler.kubeconfig"
        own.write_text(json.dumps(config))
        kept = [f"--kubeconfig={own}", "--namespace=lockstep-system", "--agents-wait=0"]
        ports = [f"--listen=127.0.0.1:{plane.free_port()}"]
        ports += [
            f"--{each}-listen=127.0.0.1:{plane.free_port()}" for each in ("metrics", "console")
        ]
        scheduler = [sys.executable, "-m", "central", "central", *kept, *ports]
        controllers = ["resourceclaim-controller"]
        controllers += ["podgroup-protection-controller"] if KUBE in NATIVE_GANGS else []
        controller = [
            str(program("kube-controller-manager")),
            f"--kubeconfig={made.kubeconfig}",
            f"--controllers={','.join(controllers)}",
            *group_flags(),
            "--leader-elect=false",
            f"--secure-port={plane.free_port()}",
            f"--cert-dir={made.folder / 'controllers'}",
        ]
        self._log = (made.folder / "programs").open("wb")
        self._processes = [
            subprocess.Popen(argv, stdout=self._log, stderr=self._log, cwd=ROOT)
            for argv in (scheduler, controller)
        ]
        self._path = Path(made.folder / "programs")

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        print(self._path.read_text()[-4000:])
        self._log.close()


def member(name: str, gang: str, size: int, **claims: tuple[str, ...]) -> Json:
    made: Json = {
        "metadata": {
            "name": name,
            "labels": {"lockstep.dev/gang": gang, "app": gang},
            "annotations": {"lockstep.dev/gang-min": str(size)},
        },
        "spec": {"schedulerName": "lockstep", "containers": [{"name": "main", "image": "none"}]},
    }
    return claiming(made, *claims.get("templates", ()), claims=claims.get("named", ()))


def pods(server: Plane, gang: str) -> list[Json]:
    found = server.client.get(f"{PODS}?labelSelector=app={gang}")["items"]
    return list(found)


def nodes(server: Plane, gang: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in pods(server, gang)]


def given(server: Plane) -> dict[str, list[str]]:
    """The devices of each allocated claim."""
    found = {}
    for claim in server.client.get(CLAIMS)["items"]:
        if (allocation := claim.get("status", {}).get("allocation")) is not None:
            results = allocation["devices"]["results"]
            found[claim["metadata"]["name"]] = [f"{r['pool']}/{r['device']}" for r in results]
    return found


def end(server: Plane, *gangs: str) -> None:
    """Deletes the gangs, and waits until their devices are free."""
    delete(server, *gangs)
    eventually(lambda: not given(server), 60)


def delete(server: Plane, *gangs: str) -> None:
    for pod in (pod for gang in gangs for pod in pods(server, gang)):
        body = json.dumps({"gracePeriodSeconds": 0}).encode()
        path = f"{PODS}/{pod['metadata']['name']}"
        assert server.client.request("DELETE", path, body, "application/json").ok


def test_a_gang_with_claims_from_a_template(server: Plane) -> None:
    for i in range(4):
        post(server.client, PODS, member(f"g-{i}", "g", 4, templates=("one",)))
    eventually(lambda: sorted(nodes(server, "g")) == ["a", "a", "b", "b"], 60)
    taken = given(server)
    assert len({each for some in taken.values() for each in some}) == 4
    for claim in server.client.get(CLAIMS)["items"]:
        (user,) = claim["status"]["reservedFor"]
        allocation = claim["status"]["allocation"]
        (result,) = allocation["devices"]["results"]
        (config,) = allocation["devices"]["config"]
        assert (config["source"], result["request"]) == ("FromClass", "gpu")
        assert result["tolerations"][0]["operator"] == "Exists"
        (pod,) = [p for p in pods(server, "g") if p["metadata"]["uid"] == user["uid"]]
        assert pod["spec"]["nodeName"] == result["pool"]
    post(server.client, PODS, member("late-0", "late", 1, templates=("one",)))
    eventually(lambda: "0 of 2 devices" in json.dumps(pods(server, "late")), 60)
    end(server, "g", "late")


def test_pods_share_a_claim(server: Plane) -> None:
    post(server.client, CLAIMS, resource_claim("shared", asks(2)))
    for i in range(3):
        post(server.client, PODS, member(f"s-{i}", "s", 3, named=("shared",)))
    eventually(lambda: all(nodes(server, "s")), 60)
    assert len(set(nodes(server, "s"))) == 1
    shared = server.client.get(f"{CLAIMS}/shared")["status"]
    assert len(shared["reservedFor"]) == 3
    assert len(shared["allocation"]["devices"]["results"]) == 2
    end(server, "s")


def test_a_gang_that_does_not_fit_takes_nothing(server: Plane) -> None:
    for i in range(5):
        post(server.client, PODS, member(f"b-{i}", "b", 5, templates=("one",)))
    eventually(lambda: "fits 4 of 5" in json.dumps(pods(server, "b")), 60)
    assert not any(nodes(server, "b"))
    assert not given(server)
    end(server, "b")


def test_a_claim_is_made_for_an_extended_resource(server: Plane) -> None:
    """Two containers and an init container: each has its own devices, and the init container those of the others."""
    name = "example.com/gpu"
    if not server.client.request("GET", f"{RESOURCES}/deviceclasses/serving", None, "").ok:
        post(
            server.client,
            f"{RESOURCES}/deviceclasses",
            device_class("serving", extendedResourceName=name),
        )
    one = {"image": "none", "resources": {"limits": {name: "1"}}}
    for i in range(2):
        made = member(f"x-{i}", "x", 2)
        made["spec"]["containers"] = [{"name": "a", **one}, {"name": "b", **one}]
        made["spec"]["initContainers"] = [{"name": "first", **one}]
        post(server.client, PODS, made)
    eventually(lambda: sorted(nodes(server, "x")) == ["a", "b"], 60)
    assert sorted(each for some in given(server).values() for each in some) == [
        "a/gpu-0",
        "a/gpu-1",
        "b/gpu-0",
        "b/gpu-1",
    ]
    for pod in pods(server, "x"):
        told = pod["status"]["extendedResourceClaimStatus"]
        claim = server.client.get(f"{CLAIMS}/{told['resourceClaimName']}")
        assert claim["metadata"]["annotations"] == {
            "resource.kubernetes.io/extended-resource-claim": "true"
        }
        requests = ["container-1-request-0", "container-2-request-0"]
        assert [each["name"] for each in claim["spec"]["devices"]["requests"]] == requests
        results = claim["status"]["allocation"]["devices"]["results"]
        assert [each["request"] for each in results] == requests
        uses = {(each["containerName"], each["requestName"]) for each in told["requestMappings"]}
        assert uses == {("a", requests[0]), ("b", requests[1]), ("first", requests[0])}
    end(server, "x")


@pytest.mark.skipif(
    KUBE not in NATIVE_GANGS, reason="PodGroups of scheduling.k8s.io came with 1.36"
)
def test_a_claim_of_a_podgroup_is_allocated_once_and_reserved_for_it(server: Plane) -> None:
    """Its controller makes the claim from the template; it is free again once the PodGroup is deleted."""
    groups = f"/apis/scheduling.k8s.io/{NATIVE_GANGS[KUBE][0]}/namespaces/default/podgroups"
    entry = {"name": "net", "resourceClaimTemplateName": "one"}
    group = native_podgroup("group", 2)
    group["spec"]["resourceClaims"] = [entry]
    uid = post(server.client, groups, group)["metadata"]["uid"]
    for i in range(2):
        made = member(f"n-{i}", "n", 2)
        made["metadata"] = {"name": f"n-{i}", "labels": {"app": "n"}}
        made["spec"]["schedulingGroup"] = {"podGroupName": "group"}
        made["spec"]["resourceClaims"] = [entry]
        post(server.client, PODS, made)
    eventually(lambda: all(nodes(server, "n")), 60)
    assert len(set(nodes(server, "n"))) == 1
    (name,) = given(server)
    claim = server.client.get(f"{CLAIMS}/{name}")
    assert [each["uid"] for each in claim["status"]["reservedFor"]] == [uid]
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 1
    assert server.client.request("DELETE", f"{groups}/group", None, "").ok
    end(server, "n")


def test_halves_of_a_gpu_and_the_whole_are_never_given_at_once(server: Plane) -> None:
    """Node h has two GPUs, each as a whole and as two halves, which use its counters: three halves leave no whole."""
    ready_node(server.client, "h")
    for each in parted("h", 2):
        post(server.client, f"{RESOURCES}/resourceslices", each)
    for size in ("half", "whole"):
        chosen = f'device.attributes["{DRIVER}"].model == "{size}"'
        templates = f"{RESOURCES}/namespaces/default/resourceclaimtemplates"
        post(server.client, templates, template(size, asks(1, chosen)))
    for i in range(3):
        post(server.client, PODS, member(f"p-{i}", "p", 3, templates=("half",)))
    eventually(lambda: nodes(server, "p") == ["h"] * 3, 60)
    post(server.client, PODS, member("w-0", "w", 1, templates=("whole",)))
    eventually(lambda: "devices" in json.dumps(pods(server, "w")[0].get("status")), 60)
    assert nodes(server, "w") == [""]
    delete(server, "p")
    eventually(lambda: nodes(server, "w") == ["h"], 60)
    end(server, "w")


def test_pods_share_a_device_by_capacity(server: Plane) -> None:
    """Node s has one GPU of 80 GiB, given in steps of 10: two pods of 35 GiB take 40 each, and a third one waits."""
    policy = {"default": "80Gi", "validRange": {"min": "10Gi", "step": "10Gi"}}
    capacity = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    chosen = offer(server, "s", {"allowMultipleAllocations": True, "capacity": capacity})
    asked = asks(1, chosen, capacity={"requests": {"memory": "35Gi"}})
    templates = f"{RESOURCES}/namespaces/default/resourceclaimtemplates"
    post(server.client, templates, template("part", asked))
    for i in range(2):
        post(server.client, PODS, member(f"c-{i}", "c", 2, templates=("part",)))
    eventually(lambda: nodes(server, "c") == ["s"] * 2, 60)
    allocations = [
        server.client.get(f"{CLAIMS}/{name}")["status"]["allocation"] for name in given(server)
    ]
    results = [result for each in allocations for result in each["devices"]["results"]]
    assert [each["consumedCapacity"] for each in results] == [{"memory": str(40 << 30)}] * 2
    assert len({each["shareID"] for each in results}) == 2
    post(server.client, PODS, member("d-0", "d", 1, templates=("part",)))
    eventually(lambda: "devices" in json.dumps(pods(server, "d")[0].get("status")), 60)
    delete(server, "c")
    eventually(lambda: nodes(server, "d") == ["s"], 60)
    end(server, "d")


def test_a_pod_is_bound_when_the_conditions_of_its_device_are_met(server: Plane) -> None:
    """The device of node f is attached first: its driver says when."""
    conditions = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["AttachFailed"]}
    spec = asks(1, offer(server, "f", conditions))
    post(server.client, CLAIMS, resource_claim("fabric", spec))
    post(server.client, PODS, member("f-0", "f", 1, named=("fabric",)))
    eventually(lambda: "fabric" in given(server), 60)
    assert nodes(server, "f") == [""]
    met = {"type": "Attached", "status": "True", "reason": "Done", "message": ""}
    met["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    device = {"driver": DRIVER, "pool": "f", "device": "gpu-0", "conditions": [met]}
    body = json.dumps({"status": {"devices": [device]}}).encode()
    path = f"{CLAIMS}/fabric/status"
    assert server.client.request("PATCH", path, body, "application/merge-patch+json").ok
    eventually(lambda: nodes(server, "f") == ["f"], 60)
    end(server, "f")


def offer(server: Plane, node: str, content: Json) -> str:
    """Makes a node with one device, which has this content too. Returns the expression that selects it."""
    ready_node(server.client, node)
    one = devices(node, 1, model=f"of-{node}")
    one["spec"]["devices"][0] |= content
    post(server.client, f"{RESOURCES}/resourceslices", one)
    return f'device.attributes["{DRIVER}"].model == "of-{node}"'


def parted(node: str, gpus: int) -> list[Json]:
    """The counters of the GPUs, and the devices that use them: of each GPU the whole and two halves."""
    counters = [{"name": f"gpu-{i}", "counters": {"slices": {"value": "2"}}} for i in range(gpus)]
    uses = [(f"gpu-{i}", size, n) for i in range(gpus) for size, n in (("whole", 2), ("half", 1))]
    made = []
    for gpu, size, count in uses:
        for part in range(2 // count):
            used = {"counterSet": gpu, "counters": {"slices": {"value": str(count)}}}
            attributes = {"model": {"string": size}}
            name = f"{gpu}-{size}-{part}"
            made.append({"name": name, "attributes": attributes, "consumesCounters": [used]})
    slices = []
    for name, what in (("counters", {"sharedCounters": counters}), ("devices", {"devices": made})):
        one = devices(node, 0)
        one["metadata"]["name"] = f"{node}-{name}"
        del one["spec"]["devices"]
        one["spec"] |= what
        one["spec"]["pool"]["resourceSliceCount"] = 2
        slices.append(one)
    return slices


def test_the_api_server_takes_the_devices_of_every_capture(server: Plane) -> None:
    """Written with the shipped rights. What is read back is what was wanted, so nothing is written again."""
    rights = ROOT / "daemonset" / "chart" / "files" / "device-claims"
    post(
        server.client,
        f"{RESOURCES}/deviceclasses",
        yaml.safe_load((rights / "device-class.yaml").read_text()),
    )
    for each in yaml.safe_load_all((rights / "rights.yaml").read_text()):
        post(server.client, f"{RBAC}/{each['kind'].lower()}s", each)
    client = connect(str(server.folder / "scheduler.kubeconfig"))
    writer = SliceWriter(client)

    def shown(name: str) -> list[SliceSeen]:
        every = map(decode_slice, client.get(f"{RESOURCES}/resourceslices")["items"])
        return [each for each in every if (each.driver, each.pool) == (DRA_DRIVER, name)]

    def replaced(known: list[SliceSeen], wanted: list[SliceSeen]) -> bool:
        try:
            writer.replace(known, wanted)
        except Refused:  # until the API server knows the rights
            return False
        return True

    def publish(node: ClusterNode) -> list[SliceSeen]:
        known = shown(node.name)
        wanted = slices_of(node, known)
        eventually(lambda: replaced(known, wanted))
        assert slices_of(node, shown(node.name)) == shown(node.name)
        return wanted

    for number, file in enumerate(CAPTURES):
        name, topology = f"n{number}", survey(capture.load(file))
        post(server.client, "/api/v1/nodes", {"metadata": {"name": name}})
        node = published_node(topology)
        node.name = name
        assert sum(len(each.devices) for each in publish(node)) > 0
        ill = sick(topology, len(topology.gpus) - 1, "XID 79: the GPU has fallen off the bus")
        held = Grant("ns", "p", "main", "nvidia.com/gpu", (topology.gpus[0].uuid,))
        node = published_node(ill, held)
        node.name = name
        assert any(device.taints for each in publish(node) for device in each.devices)
        node.silent = True
        assert publish(node) == []
    client.close()

"""What a pod takes from its node, and that every field of a pod which changes it is read."""

import pytest

from central.model import limits
from central.model.json_types import Json
from protos import names
from tests.central.kube.raw_objects import container, pod, reader, requests

GI = 2**30
# Fields of the API that change where a pod fits or what it takes there, and who reads them. Every other
# field is in IGNORED; a client of a newer Kubernetes with new fields fails the test until they are sorted in.
READ = {
    "PodSpec": "affinity containers hostNetwork initContainers nodeName nodeSelector overhead preemptionPolicy priority "
    "resourceClaims resources schedulerName schedulingGates tolerations topologySpreadConstraints volumes",
    "PodStatus": "allocatedResources conditions containerStatuses initContainerStatuses phase resize resourceClaimStatuses resources "
    "startTime",
    "Container": "name ports resources restartPolicy",
    "ContainerStatus": "allocatedResources name resources restartCount state",
}
IGNORED = {
    # Processes, names, identity and files inside the pod; what an ephemeral container may not request;
    # priorityClassName is resolved to priority by admission; runtimeClassName to overhead and nodeSelector;
    # schedulingGroup names the gang, not an amount.
    "PodSpec": "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks "
    "ephemeralContainers evictionResponders hostAliases hostIPC hostPID hostUsers hostname hostnameOverride "
    "imagePullSecrets os priorityClassName readinessGates restartPolicy runtimeClassName schedulingGroup "
    "securityContext serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
    "terminationGracePeriodSeconds",
    # Lockstep allocates no claim for an extended resource, and none for resources of the node.
    "PodStatus": "ephemeralContainerStatuses extendedResourceClaimStatus hostIP hostIPs message nominatedNodeName "
    "nodeAllocatableResourceClaimStatuses observedGeneration podIP podIPs qosClass reason volumeHealth",
    "Container": "args command env envFrom image imagePullPolicy lifecycle livenessProbe readinessProbe resizePolicy "
    "restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy "
    "tty volumeDevices volumeMounts workingDir",
    "ContainerStatus": "allocatedResourcesStatus containerID image imageID lastState ready started stopSignal user "
    "volumeMounts",
}


@pytest.mark.parametrize("name", READ)
def test_every_field_of_a_pod_is_read_or_changes_nothing(name: str) -> None:
    from kubernetes import client  # takes a second to import

    kind = getattr(client, f"V1{name}")
    read, ignored = set(READ[name].split()), set(IGNORED[name].split())
    assert not read & ignored
    assert set(kind.attribute_map.values()) == read | ignored


def asking(name: str = "main", **amounts: str) -> Json:
    return {"name": name, "resources": {"requests": amounts}}


def level(**values: Json) -> Json:
    return pod("p", asking(cpu="1", memory="1Gi"), asking("b", cpu="1"), resources=values)


def test_pod_level_requests_replace_those_of_containers() -> None:
    raw = level(requests={"cpu": "20", "hugepages-2Mi": "1Gi"})
    raw["spec"]["overhead"] = {"cpu": "1"}
    assert requests(raw) == {"cpu": 21_000, "memory": GI, "hugepages-2Mi": GI, "pods": 1}
    assert requests(level(requests={"cpu": "1"}))["cpu"] == 1000  # no matter what containers say
    assert requests(level(requests={names.GPU: "4"})) == {"cpu": 2000, "memory": GI, "pods": 1}


def test_pod_level_limits_are_requests_where_nothing_else_is() -> None:
    raw = level(limits={"cpu": "8", "hugepages-1Gi": "2Gi"})
    assert requests(raw) == {"cpu": 2000, "memory": GI, "hugepages-1Gi": 2 * GI, "pods": 1}


def test_pod_level_requests_of_other_schedulers() -> None:
    raw = level(requests={"cpu": "20"})
    raw["spec"] |= {"schedulerName": "default-scheduler", "nodeName": "n1"}
    assert requests(raw)["cpu"] == 20_000


def resized(
    spec: str, granted: str | None, present: str | None, *, infeasible: bool = False, **more: Json
) -> int:
    """The pod's cpu."""
    raw = pod("p", asking(cpu=spec), asking("other", cpu="1"), **more)
    state: Json = {"name": "main"}
    if granted:
        state["allocatedResources"] = {"cpu": granted}
    if present:
        state["resources"] = {"requests": {"cpu": present}}
    raw["status"] |= {"containerStatuses": [state, {"name": "other"}]}
    if infeasible:
        raw["status"]["conditions"] = [{"type": "PodResizePending", "reason": "Infeasible"}]
    return requests(raw)["cpu"]


def test_the_larger_of_old_and_new_during_a_resize() -> None:
    assert resized("2", "2", "2") == 3000
    assert resized("4", "2", "2") == 5000  # asked for, not granted yet
    assert resized("2", "4", "4") == 5000  # shrinks, but still has it
    assert resized("2", "2", "4") == 5000
    assert resized("2", "4", None) == 5000
    assert resized("2", "4", "2") == 5000  # granted before it was asked back, and not there yet
    assert resized("8", "2", "2", infeasible=True) == 3000  # never granted
    assert resized("8", None, None, infeasible=True) == 9000
    assert resized("8", None, "2", infeasible=True) == 3000


def test_a_resize_of_a_sidecar_and_at_the_pod_level() -> None:
    raw = pod(
        "p",
        asking(cpu="1"),
        initContainers=[{**asking("side", cpu="1"), "restartPolicy": "Always"}],
    )
    raw["status"]["initContainerStatuses"] = [{"name": "side", "allocatedResources": {"cpu": "3"}}]
    raw["status"]["containerStatuses"] = [{"name": "main"}]
    assert requests(raw)["cpu"] == 4000
    raw = level(requests={"cpu": "4"})
    raw["spec"]["overhead"] = {"cpu": "1"}
    raw["status"]["containerStatuses"] = [{"name": "main"}]
    raw["status"] |= {"resources": {"requests": {"cpu": "9"}}, "allocatedResources": {"cpu": "7"}}
    assert (
        requests(raw)["cpu"] == 9000
    )  # 8 without the overhead, which is added to what the spec says
    raw["status"]["resize"] = "Infeasible"
    assert requests(raw)["cpu"] == 9000


def test_a_pod_that_is_resized_is_another_class() -> None:
    decoder, raw = reader(), pod("p", asking(cpu="1"))
    raw["status"]["containerStatuses"] = [{"name": "main", "allocatedResources": {"cpu": "1"}}]
    before = decoder.pod(raw).spec
    raw["status"]["containerStatuses"][0]["allocatedResources"] = {"cpu": "3"}
    after = decoder.pod(raw).spec
    assert (before.request("cpu"), after.request("cpu")) == (1000, 3000)


def test_a_pod_whose_status_names_no_container_is_another_class_too() -> None:
    decoder, raw = reader(), level(requests={"cpu": "1"})
    assert decoder.pod(raw).spec.request("cpu") == 1000
    raw["status"]["allocatedResources"] = {"cpu": "3"}
    assert decoder.pod(raw).spec.request("cpu") == 3000
    raw = pod("p", asking(cpu="1"), initContainers=[{**asking("side"), "restartPolicy": "Always"}])
    assert decoder.pod(raw).spec.request("cpu") == 1000
    raw["status"]["initContainerStatuses"] = [{"name": "side", "allocatedResources": {"cpu": "3"}}]
    assert decoder.pod(raw).spec.request("cpu") == 4000


def test_sums_saturate() -> None:
    raw = pod("p", *[asking(f"c{i}", memory="5E", **{names.GPU: "9E"}) for i in range(3)])
    assert requests(raw)["memory"] == limits.POD_AMOUNT
    assert requests(raw)[names.GPU] == limits.DEVICES
    assert 65536 * limits.POD_AMOUNT <= 2**63


def test_a_pod_whose_amounts_were_cut_is_refused() -> None:
    """A reason that says how much it needs would name the wrong number."""
    most = limits.DEVICES - 1
    for amount, refused in (
        (most, ""),
        (most + 1, f"{names.GPU}: {most + 1} or more"),
        (2**62, "or more"),
    ):
        told = reader().pod(pod("p", asking(**{names.GPU: str(amount)}))).spec.unsupported
        assert bool(told) == bool(refused)
        assert refused in told


def test_a_refused_pod_is_counted_all_the_same() -> None:
    """A user may bind it to a node himself."""
    raw = pod(
        "p", container(gpu=2), tolerations=[{"key": f"k{i}"} for i in range(1000)], nodeName="n1"
    )
    spec = reader().pod(raw).spec
    assert (spec.request(names.GPU), spec.request("cpu")) == (2, 1000)
    assert spec.unsupported == "spec.tolerations: 1000 entries; at most 256 are accepted"

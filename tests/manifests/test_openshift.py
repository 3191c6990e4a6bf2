"""components/openshift: the constraints admit the pods as they are shipped, and little else. OpenShift's own rules, as
far as these pods touch them, stand here again."""

from pathlib import Path

import pytest

from tests.manifests.test_components import Json, built

pytestmark = pytest.mark.slow

# OpenShift's own nonroot-v2, as its documentation describes it.
NONROOT_V2: Json = {
    "allowHostDirVolumePlugin": False,
    "allowPrivilegeEscalation": False,
    "allowPrivilegedContainer": False,
    "allowedCapabilities": ["NET_BIND_SERVICE"],
    "readOnlyRootFilesystem": False,
    "runAsUser": {"type": "MustRunAsNonRoot"},
    "seLinuxContext": {"type": "MustRunAs"},
    "seccompProfiles": ["runtime/default"],
    "volumes": [
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral"),
        *("persistentVolumeClaim", "projected", "secret"),
    ],
}


def refusals(constraints: Json, pod: Json) -> set[str]:
    """The fields of the pod that the constraints do not admit."""
    every, found = pod.get("securityContext", {}), set()
    for field, allowed in (("hostNetwork", "allowHostNetwork"), ("hostPID", "allowHostPID")):
        if pod.get(field) and not constraints.get(allowed):
            found.add(field)
    for volume in pod.get("volumes", ()):
        (kind,) = volume.keys() - {"name"}
        host = kind == "hostPath" and not constraints["allowHostDirVolumePlugin"]
        if kind not in constraints["volumes"] or host:
            found.add(f"volume {kind}")
    if every.get("seccompProfile") != {"type": "RuntimeDefault"}:
        found.add("seccompProfile")
    if every.get("seLinuxOptions") and constraints["seLinuxContext"]["type"] != "RunAsAny":
        found.add("seLinuxOptions")
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        own = {**every, **container.get("securityContext", {})}
        if own.get("privileged") and not constraints["allowPrivilegedContainer"]:
            found.add("privileged")
        escalates = own.get("allowPrivilegeEscalation", True)
        if escalates and not constraints["allowPrivilegeEscalation"]:
            found.add("allowPrivilegeEscalation")
        if constraints["readOnlyRootFilesystem"] and not own.get("readOnlyRootFilesystem"):
            found.add("readOnlyRootFilesystem")
        if set(own.get("capabilities", {}).get("add", ())) - {*constraints["allowedCapabilities"]}:
            found.add("capabilities")
        if constraints["runAsUser"]["type"] == "MustRunAsNonRoot" and not own.get("runAsUser"):
            found.add("runAsUser")
    return found


@pytest.mark.parametrize(
    "others",
    [
        ("gpu-operator",),
        ("gpu-operator", "mig", "multus", "rdma", "imex", "preflight"),
        ("gpu-operator", "kernel", "cdi", "pcie-tree", "watch"),
    ],
)
def test_the_agent_and_the_scheduler_are_admitted(tmp_path: Path, others: tuple[str, ...]) -> None:
    found = built(tmp_path, *others, "openshift")
    constraints = found["SecurityContextConstraints", "lockstep-agent"]
    agent = found["DaemonSet", "lockstep-agent"]["spec"]["template"]["spec"]
    assert refusals(constraints, agent) == set()
    assert agent["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    assert {"volume hostPath", "runAsUser", "seLinuxOptions"} <= refusals(NONROOT_V2, agent)
    central = found["Deployment", "lockstep-central"]["spec"]["template"]["spec"]
    assert refusals(NONROOT_V2, central) == set()


def test_what_the_constraints_refuse(tmp_path: Path) -> None:
    """The components that the text names: they need privileged containers."""
    found = built(tmp_path, "openshift", "gke")
    constraints = found["SecurityContextConstraints", "lockstep-agent"]
    agent = found["DaemonSet", "lockstep-agent"]["spec"]["template"]["spec"]
    assert refusals(constraints, agent) == {"privileged"}
    assert "hostNetwork" in refusals(constraints, {**agent, "hostNetwork": True})


def test_only_these_accounts_may_use_them(tmp_path: Path) -> None:
    found = built(tmp_path, "openshift")
    constraints = found["SecurityContextConstraints", "lockstep-agent"]
    assert (constraints["users"], constraints["groups"]) == ([], [])
    (rule,) = found["Role", "lockstep-agent-scc"]["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["lockstep-agent"], ["use"])
    for account in ("lockstep-agent", "lockstep-central"):
        binding = found["RoleBinding", f"{account}-scc"]
        assert [each["name"] for each in binding["subjects"]] == [account]
        workload = ("DaemonSet" if account == "lockstep-agent" else "Deployment", account)
        assert found[workload]["spec"]["template"]["spec"]["serviceAccountName"] == account

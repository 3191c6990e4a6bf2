"""daemonset/ against the programs it starts, the names they use and the rights they need."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent import flags as agent_flags
from agent import settings as agent_settings
from central.cli import main
from central.controllers.job.plugins import PLUGINS
from central.kube.decode.api_kinds import job_kinds, kinds
from central.kube.decode.decoder import Decoder
from central.kube.resource_paths import BY_KIND
from central.kube.write.leader_label import LABEL
from central.server import settings
from protos import names
from tests.e2e.admission_cases import BY_POLICIES, BY_THE_CRDS
from tests.manifests.manifests import (
    FOLDER,
    ROOT,
    documents,
    one,
    pod_spec,
    shipped,
    with_components,
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKLOADS = [
    ("DaemonSet", "lockstep-agent", "agent"),
    ("Deployment", "lockstep-central", "central"),
]


MANIFESTS = [
    path
    for path in sorted(FOLDER.rglob("*.yaml"))
    if not {"chart", "kind"} & {*path.relative_to(FOLDER).parts}
]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.name)
def test_every_manifest_parses(path: Path) -> None:
    for document in documents(path):
        assert document["apiVersion"]
        assert document["kind"]


def test_every_manifest_is_applied_or_an_example_or_a_choice() -> None:
    listed = documents(FOLDER / "kustomization.yaml")[0]["resources"]
    there = {str(path.relative_to(FOLDER)) for path in MANIFESTS}
    links = {str(path.relative_to(FOLDER)) for path in MANIFESTS if path.is_symlink()}
    assert {str((FOLDER / link).resolve().relative_to(FOLDER)) for link in links} <= set(listed)
    assert there - set(listed) - links - {"kustomization.yaml"} == {
        str(path.relative_to(FOLDER))
        for folder in ("examples", "components")
        for path in (FOLDER / folder).rglob("*.yaml")
    }


def test_everything_lives_in_one_namespace() -> None:
    spaces = {d["metadata"].get("namespace") for d in shipped()} - {None}
    assert spaces == {names.NAMESPACE}
    assert one("Namespace", names.NAMESPACE)


@pytest.mark.parametrize(("kind", "name", "extra"), WORKLOADS)
def test_images_are_this_version(kind: str, name: str, extra: str) -> None:
    container = pod_spec(kind, name)["containers"][0]
    assert container["image"] == f"ghcr.io/lockstep/{extra}:{PROJECT['version']}"
    assert container["imagePullPolicy"] == "IfNotPresent"
    dockerfile = (FOLDER / f"Dockerfile.{extra}").read_text()
    assert f"--require-hashes -r requirements-{extra}.txt" in dockerfile
    script = next(s for s, entry in PROJECT["scripts"].items() if entry.endswith(f":{extra}"))
    assert f'ENTRYPOINT ["{script}"]' in dockerfile


def test_the_demo_is_in_no_image() -> None:
    assert "rm -r central/standalone" in (FOLDER / "Dockerfile.central").read_text()


def test_the_agents_arguments_are_accepted() -> None:
    spec = pod_spec("DaemonSet", "lockstep-agent")
    parsed = agent_flags.parser().parse_args(spec["containers"][0]["args"])
    chosen = agent_settings.settings(parsed)
    mounts = {m["mountPath"]: m["name"] for m in spec["containers"][0]["volumeMounts"]}
    volumes = {v["name"]: v for v in spec["volumes"]}

    assert chosen.server == f"lockstep-central.{names.NAMESPACE}.svc:9443"
    for folder in ("device-plugins", "pod-resources"):
        inside = str(chosen.kubelet_dir / folder)
        assert volumes[mounts[inside]]["hostPath"]["path"] == f"/var/lib/kubelet/{folder}"
    token = chosen.token_file
    assert token is not None
    source = volumes[mounts[str(token.parent)]]["projected"]["sources"][0]["serviceAccountToken"]
    assert source["path"] == token.name
    assert source["audience"] == names.AUDIENCE
    ca = chosen.ca_file
    assert ca is not None
    assert volumes[mounts[str(ca.parent)]]["configMap"] == {"name": "lockstep-ca"}
    assert ca.name == "ca.crt"
    roots = (chosen.sysfs_root, chosen.proc_root, chosen.dev_root, chosen.driver_root)
    assert [str(root) for root in roots] == ["/host/sys", "/host/proc", "/host/dev", "/host"]
    for folder in ("sys", "proc", "dev"):
        assert volumes[mounts[f"/host/{folder}"]]["hostPath"]["path"] == f"/{folder}"


def _add(document: Any, path: str, value: Any) -> None:
    """A JSON patch that appends to a list."""
    *keys, last = path.strip("/").split("/")
    assert last == "-"
    for key in keys:
        document = document[int(key) if key.isdigit() else key]
    document.append(value)


def test_the_rdma_component_fits_the_agent() -> None:
    (component,) = documents(FOLDER / "components/rdma/kustomization.yaml")
    agent = one("DaemonSet", "lockstep-agent")
    for patch in component["patches"]:
        assert patch["target"] == {"kind": "DaemonSet", "name": "lockstep-agent"}
        for change in yaml.safe_load(patch["patch"]):
            assert change["op"] == "add"
            _add(agent, change["path"], change["value"])
    spec = agent["spec"]["template"]["spec"]
    args = spec["containers"][0]["args"]
    chosen = agent_settings.settings(agent_flags.parser().parse_args(args))
    assert (chosen.rdma_hca_handles, chosen.rdma_hca_objects) == (64, 100_000)
    mounts = {m["mountPath"]: m for m in spec["containers"][0]["volumeMounts"]}
    mount = mounts[str(chosen.cgroup_root)]
    assert not mount.get("readOnly")
    volumes = {v["name"]: v for v in spec["volumes"]}
    assert volumes[mount["name"]]["hostPath"]["path"] == "/sys/fs/cgroup"


def test_the_rules_of_the_crds_know_the_plugins() -> None:
    definition = one("CustomResourceDefinition", "jobs.batch.volcano.sh")
    (version,) = definition["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["tasks"]["maxItems"], "an unbounded list's rules are refused"
    (named,) = spec["properties"]["plugins"]["x-kubernetes-validations"]
    assert set(re.findall(r'"(\w+)"', named["rule"])) == set(PLUGINS)


def test_policies_are_bound_and_every_rule_has_a_message() -> None:
    made = with_components("admission", "defaults")
    for kind in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"):
        policies = {d["metadata"]["name"]: d for d in made if d["kind"] == kind}
        bound = [d["spec"]["policyName"] for d in made if d["kind"] == f"{kind}Binding"]
        assert sorted(policies) == sorted(bound)
        for policy in policies.values():
            for rule in policy["spec"].get("validations", ()):
                told = rule.get("message") or rule["messageExpression"]
                assert "spec." in told or "annotations" in told or "annotation " in told


ELSEWHERE = {  # rules that no single object can break, and what tests with the file's name expect of them
    "spec.queue cannot be changed": "test_admission.py",
    "spec.tasks cannot be added, removed or renamed": "test_admission.py",
    "which has queues below it": "test_from_volcano.py",
    "which is below": "test_from_volcano.py",
    "spec is missing": "test_admission_before.py",
}


def test_a_real_api_server_is_asked_about_every_rule() -> None:
    """Each rule of the CRDs and policies has an object that breaks it."""
    expected = [case[2] for case in BY_THE_CRDS + BY_POLICIES]
    expected = [each.removeprefix("spec.tasks[].name: w") for each in expected]
    for part, name in ELSEWHERE.items():
        assert part in (ROOT / "tests/e2e" / name).read_text()
    for made in with_components("admission"):
        for told in _messages(made):
            assert any(each in told for each in [*expected, *ELSEWHERE]), told


def _messages(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "rule" in part or "expression" in part:
            yield from (part[key] for key in ("message", "messageExpression") if key in part)
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _messages(each)


def test_policies_refuse_no_pod_of_another_scheduler() -> None:
    """A policy that reads pods asks for the scheduler's name first. The class lockstep-critical is of ours alone."""
    container = pod_spec("Deployment", "lockstep-central")["containers"][0]
    served = settings.settings(main.parser().parse_args(container["args"])).scheduler_names
    names_of = re.compile(r'schedulerName\.orValue\("lockstep"\) in (\[.*?\])')
    for policy in with_components("admission"):
        if policy["kind"] == "ValidatingAdmissionPolicy" and "pods" in str(
            policy["spec"]["matchConstraints"]
        ):
            first = policy["spec"]["matchConditions"][0]["expression"]
            (listed,) = names_of.findall(first)
            assert set(yaml.safe_load(listed)) == set(served)


def test_the_centres_arguments_are_accepted() -> None:
    container = pod_spec("Deployment", "lockstep-central")["containers"][0]
    parsed = main.parser().parse_args(container["args"])
    chosen = settings.settings(parsed)
    assert chosen.topology_levels == (names.ZONE, names.BLOCK, names.RACK)
    assert names.SCHEDULER in chosen.scheduler_names
    assert chosen.listen.endswith(":9443")
    service = one("Service", "lockstep-central")["spec"]
    assert service["ports"][0]["port"] == 9443
    labels = one("Deployment", "lockstep-central")["spec"]["template"]["metadata"]["labels"]
    name = "app.kubernetes.io/name"
    assert service["selector"] == {name: labels[name], LABEL: "true"}
    assert service["publishNotReadyAddresses"]  # agents are led there before it decides
    assert chosen.leader_elect
    told = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    fields = {
        e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"]
        for e in container["env"]
        if e["name"] not in told
    }
    assert fields == {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name"}
    assert told == {"LOCKSTEP_SERVER": f"lockstep-central.{names.NAMESPACE}.svc:9443"}
    assert one("Deployment", "lockstep-central")["spec"]["replicas"] == 2
    writable = {m["mountPath"] for m in container["volumeMounts"]}
    assert chosen.ca_out is not None
    assert str(Path(chosen.ca_out).parent) in writable


@pytest.mark.parametrize(("kind", "name", "extra"), WORKLOADS)
def test_probes_ask_where_the_program_answers(kind: str, name: str, extra: str) -> None:
    container = pod_spec(kind, name)["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert f"--metrics-listen=0.0.0.0:{ports['metrics']}" in container["args"]
    asked = [container[probe].get("httpGet") for probe in ("livenessProbe", "readinessProbe")]
    assert asked[0] == {"path": "/healthz", "port": "metrics"}
    assert asked[1] == {"path": "/readyz", "port": "metrics"}


@pytest.mark.parametrize(("kind", "name", "extra"), WORKLOADS)
def test_pods_may_do_no_more_than_they_must(kind: str, name: str, extra: str) -> None:
    spec = pod_spec(kind, name)
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    context = spec["containers"][0]["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert not context.get("privileged")
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    if extra == "central":
        assert spec["securityContext"]["runAsNonRoot"] is True


def test_the_agent_has_no_rights() -> None:
    account = one("ServiceAccount", names.AGENT_ACCOUNT)
    assert account["automountServiceAccountToken"] is False
    assert pod_spec("DaemonSet", "lockstep-agent")["automountServiceAccountToken"] is False
    subjects = [s["name"] for d in shipped() for s in d.get("subjects", [])]
    assert names.AGENT_ACCOUNT not in subjects


def granted(kind: str, name: str = "lockstep-central") -> set[tuple[str, str, str]]:
    """(group, resource, verb) of a role, without those for named objects only."""
    rules: list[dict[str, Any]] = one(kind, name)["rules"]
    return {
        (group, resource, verb)
        for rule in rules
        if "resourceNames" not in rule
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def of_kinds(verbs: str, *kinds: str, sub: str = "") -> set[tuple[str, str, str]]:
    paths = [BY_KIND[kind] for kind in kinds]
    return {(path.group, path.plural + sub, verb) for path in paths for verb in verbs.split()}


CLAIM_VERBS = ("get", "patch", "create", "delete")


def test_the_scheduler_is_granted_what_it_calls_and_nothing_else() -> None:
    jobs = {kind.resource for kind in job_kinds(Decoder((), ()))}
    watched = {kind.resource for kind in kinds(Decoder((), ()))} - jobs
    lists = {(place.group, place.plural, verb) for place in watched for verb in ("list", "watch")}
    calls = {
        *of_kinds("get", "Pod", "Node", "PersistentVolumeClaim", "PersistentVolume"),
        *of_kinds("patch", "PodGroup", "Queue", "PersistentVolumeClaim", "PersistentVolume"),
        *of_kinds("patch", "PodGroup", "Queue", "HyperNode", "Pod", sub="/status"),
        ("scheduling.k8s.io", "podgroups", "get"),
        ("scheduling.k8s.io", "podgroups/status", "patch"),
        ("scheduling.k8s.io", "compositepodgroups", "get"),
        ("scheduling.k8s.io", "compositepodgroups/status", "patch"),
        ("", "pods/binding", "create"),
        ("", "pods/eviction", "create"),
        ("", "pods", "delete"),
        ("resource.k8s.io", "deviceclasses", "get"),
        *(("resource.k8s.io", "resourceclaims", verb) for verb in CLAIM_VERBS),
        ("resource.k8s.io", "resourceclaims/status", "patch"),
        ("resource.k8s.io", "resourceclaims/binding", "patch"),
        ("", "events", "create"),
        ("", "events", "patch"),
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }
    assert granted("ClusterRole") == lists | calls
    own = {("", "secrets", "create"), ("", "configmaps", "create")}
    assert granted("Role") == {*own, ("coordination.k8s.io", "leases", "create")}


def test_the_job_controller_is_granted_what_it_calls_and_nothing_else() -> None:
    watched = [kind.resource.kind for kind in job_kinds(Decoder((), ()))]
    made = ("Pod", "PodGroup", "Job", "PersistentVolumeClaim", "Service", "ConfigMap")
    owners = ("Job", "CronJob", "JobFlow")
    assert granted("ClusterRole", "lockstep-jobs") == {
        *of_kinds("list watch", *watched),
        *of_kinds("get create", *made, "NetworkPolicy"),  # one that is there already is looked at
        *of_kinds("create", "Secret"),
        *of_kinds("delete", "Pod", "Job", "Command"),
        # What Jobs' plugins made follows the Job.
        *of_kinds("patch", "Service", "ConfigMap", "NetworkPolicy"),
        *of_kinds("update", *owners, sub="/finalizers"),
        *of_kinds("patch", *owners, "JobTemplate", sub="/status"),
    }


def test_the_job_controllers_rights_can_be_bound_in_a_namespace() -> None:
    """Nothing in its role is without a namespace."""
    plurals = {(path.group, path.plural): path for path in BY_KIND.values()}
    for group, resource, _ in granted("ClusterRole", "lockstep-jobs"):
        assert plurals[group, resource.partition("/")[0]].namespaced
    bound = {d["metadata"]["name"]: d for d in shipped() if d["kind"] == "ClusterRoleBinding"}
    assert set(bound) == {"lockstep-central", "lockstep-jobs"}
    for name, binding in bound.items():
        assert binding["roleRef"]["name"] == name
        assert [each["name"] for each in binding["subjects"]] == ["lockstep-central"]


def test_the_component_for_namespaces() -> None:
    folder = FOLDER / "components/namespaces"
    (component,) = documents(folder / "kustomization.yaml")
    args, removed = component["patches"]
    (added,) = yaml.safe_load(args["patch"])
    flag, _, listed = added["value"].partition("=")
    assert flag == "--namespaces"
    assert settings.settings(main.parser().parse_args(["central", added["value"]])).namespaces
    assert yaml.safe_load(removed["patch"])["$patch"] == "delete"
    assert removed["target"] == {"kind": "ClusterRoleBinding", "name": "lockstep-jobs"}
    bindings = documents(folder / "rolebindings.yaml")
    assert [each["metadata"]["namespace"] for each in bindings] == listed.split(",")
    whole = one("ClusterRoleBinding", "lockstep-jobs")
    for each in bindings:
        assert each["kind"] == "RoleBinding"
        assert (each["roleRef"], each["subjects"]) == (whole["roleRef"], whole["subjects"])


def test_the_centre_reads_no_secret_but_its_own() -> None:
    """It makes those of its Jobs."""
    for kind, name in (("ClusterRole", "lockstep-jobs"), ("Role", "lockstep-central")):
        verbs = {verb for _, resource, verb in granted(kind, name) if resource == "secrets"}
        assert verbs == {"create"}
    assert not any(resource == "secrets" for _, resource, _ in granted("ClusterRole"))


def test_users_rights_aggregate_to_the_roles_of_every_cluster() -> None:
    roles = {name: one("ClusterRole", f"lockstep-{name}") for name in ("view", "edit", "admin")}
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    order = ["view", "edit", "admin"]
    for number, (name, role) in enumerate(roles.items()):
        to = {key.removeprefix(prefix) for key, value in role["metadata"]["labels"].items()}
        assert to == set(order[number:]), name
    own = {path for path in BY_KIND.values() if path.group.endswith("volcano.sh")}
    reads = granted("ClusterRole", "lockstep-view")
    assert {verb for *_, verb in reads} == {"get", "list", "watch"}
    assert {(path.group, path.plural) for path in own} <= {(g, r) for g, r, _ in reads}
    for name in ("edit", "admin"):
        written = {
            (g, r.partition("/")[0]) for g, r, _ in granted("ClusterRole", f"lockstep-{name}")
        }
        spaced = name == "edit"
        assert written == {(p.group, p.plural) for p in own if p.namespaced == spaced}


def test_the_podgroups_schema() -> None:
    crd = one("CustomResourceDefinition", "podgroups.scheduling.volcano.sh")["spec"]
    version = crd["versions"][0]
    assert (version["name"], version["subresources"]) == ("v1beta1", {"status": {}})
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert spec["minMember"]["minimum"] == 0
    assert spec["queue"]["default"] == "default"
    assert spec["networkTopology"]["properties"]["mode"]["enum"] == ["hard", "soft"]


def test_the_queues_schema() -> None:
    crd = one("CustomResourceDefinition", "queues.scheduling.volcano.sh")["spec"]
    assert crd["scope"] == "Cluster"
    spec = crd["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert (spec["weight"]["default"], spec["weight"]["minimum"]) == (1, 1)
    assert {"capability", "guarantee", "deserved", "reclaimable", "parent", "priority"} <= set(spec)
    guaranteed = spec["guarantee"]["properties"]["resource"]
    assert guaranteed == spec["capability"] | {"description": guaranteed.get("description")}


@pytest.mark.parametrize("path", sorted((FOLDER / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_examples_are_gangs_of_ours(path: Path) -> None:
    """Every pod of an example is for us, and in a gang or with a share of a GPU; those of no Job ask for GPUs."""
    groups = {d["metadata"]["name"] for d in documents(path) if d["kind"] == "PodGroup"}
    jobs = [d for d in documents(path) if d["apiVersion"].startswith("batch.volcano.sh")]
    assert {job["spec"]["schedulerName"] for job in jobs} <= {names.SCHEDULER, "volcano"}
    rest = [d for d in documents(path) if d not in jobs]
    pods = [d if d["kind"] == "Pod" else d["spec"].get("template") for d in rest]
    pods = [p for p in pods if p]
    assert pods or jobs
    for pod in pods:
        assert pod["spec"]["schedulerName"] == names.SCHEDULER
        meta = pod["metadata"]
        group = meta.get("annotations", {}).get(names.GROUP_NAMES[0])
        alone = names.GPU_SHARE in pod["spec"]["containers"][0]["resources"]["limits"]
        assert alone or group in groups or names.GANG_LABEL in meta.get("labels", {})
    wanted = [p["spec"]["containers"][0]["resources"]["limits"] for p in pods]
    assert not pods or any({names.GPU, names.GPU_SHARE} & limits.keys() for limits in wanted)


@pytest.mark.parametrize(
    ("component", "resource"),
    [("labels", "nodes"), ("condition", "nodes/status"), ("taint", "nodes")],
)
def test_the_rights_to_mark_nodes_come_with_the_flag(component: str, resource: str) -> None:
    """Without the component neither is there, and each right is one verb of one resource."""
    mine = ("nodes", "nodes/status")
    assert not any(r in mine and verb == "patch" for _, r, verb in granted("ClusterRole"))
    made = with_components(f"node-{component}")
    named = {(d["kind"], d["metadata"]["name"]): d for d in made}
    plain = {(d["kind"], d["metadata"]["name"]) for d in shipped()}
    roles = [d for key, d in named.items() if key not in plain]
    role, binding = sorted(roles, key=lambda each: len(each["kind"]))
    assert role["rules"] == [{"apiGroups": [""], "resources": [resource], "verbs": ["patch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == ["lockstep-central"]
    spec = named["Deployment", "lockstep-central"]["spec"]["template"]["spec"]
    chosen = settings.settings(main.parser().parse_args(spec["containers"][0]["args"]))
    given = {
        "labels": chosen.node_labels,
        "condition": chosen.node_condition,
        "taint": chosen.node_taint,
    }
    assert [name for name, value in given.items() if value] == [component]


@pytest.mark.parametrize(
    "flag",
    [
        "--node-condition=",
        "--node-condition=a b",
        "--node-condition=X=Maybe",
        "--node-condition=X=",
        "--node-taint=a",
        "--node-taint=a:Never",
        "--node-taint=:NoSchedule",
        "--node-taint=a=b c:NoSchedule",
    ],
)
def test_what_nodes_cannot_be_marked_with(flag: str) -> None:
    with pytest.raises(SystemExit):
        main.parser().parse_args(["central", flag])

"""docs/security.md has a sentence for each right that the shipped manifests grant to an account of ours, and no
other."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from protos.names import AGENT_ACCOUNT, CENTRAL_ACCOUNT, NAMESPACE
from tests.manifests.manifests import FOLDER, ROOT, documents, shipped, with_components

PAGE = (ROOT / "docs/security.md").read_text()
VERBS = {"get", "list", "watch", "create", "update", "patch", "delete", "use"}
ROLES = ("Role", "ClusterRole")
BINDINGS = ("RoleBinding", "ClusterRoleBinding")


class Right(NamedTuple):
    role: str  # ClusterRole lockstep-central
    verb: str
    resource: str  # with its group and subresource: jobs.batch.volcano.sh/status
    name: str = ""  # of the only object; empty: of all


@cache
def manifests() -> tuple[Any, ...]:
    return tuple(_manifests())


def _manifests() -> Iterator[Any]:
    """The default ones, and those of each component that says something about rights."""
    yield from shipped()
    for folder in sorted((FOLDER / "components").iterdir()):
        base = FOLDER / "chart/files" / folder.name
        texts = "".join(file.read_text() for each in (folder, base) for file in each.glob("*.yaml"))
        if "kind: RoleBinding" in texts and "$patch: delete" in texts:
            yield from documents(folder / "rolebindings.yaml")  # of a role of the default ones
        elif "rbac.authorization.k8s.io" in texts or "/rules/" in texts:
            yield from with_components(folder.name)


@cache
def granted() -> frozenset[Right]:
    every = manifests()
    refs = [d["roleRef"] for d in every if d["kind"] in BINDINGS]
    bound = {f"{ref['kind']} {ref['name']}" for ref in refs}
    ours = {role_name(d) for d in every if d["kind"] in ROLES}
    found = {right for d in every if d["kind"] in ROLES for right in rights(d)}
    others = {Right(name, "", "") for name in bound - ours}
    return frozenset({right for right in found if right.role in bound} | others)


def role_name(role: Any) -> str:
    return f"{role['kind']} {role['metadata']['name']}"


def rights(role: Any) -> Iterator[Right]:
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                whole, _, part = resource.partition("/")
                full = ".".join(filter(None, (whole, group))) + (f"/{part}" if part else "")
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", ("",)):
                        yield Right(role_name(role), verb, full, name)


def described(page: str) -> set[Right]:
    """Rows of tables below a heading that names a role: verbs and resources, what for, and what follows."""
    found = set()
    for section in re.split(r"^###? ", page, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        if not (role := re.search(r"`((?:Cluster)?Role [^`]+)`", heading)):
            continue
        rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
        for cell, why, follows in rows:
            assert why.strip(), cell
            assert len(follows.split()) > 2, cell
            left, _, names = cell.partition(" named ")
            words = re.findall(r"`([^`]+)`", left)
            verbs = VERBS.intersection(words)
            resources = [word for word in words if word not in VERBS]
            assert verbs, cell
            for name in re.findall(r"`([^`]+)`", names) or [""]:
                found |= {Right(role[1], v, r, name) for v in verbs for r in resources}
        if not rows:
            found.add(Right(role[1], "", ""))
    return found


def test_each_right_has_its_sentence_and_each_sentence_its_right() -> None:
    assert described(PAGE) == granted()


def test_a_right_without_a_sentence_is_found() -> None:
    lines = [line for line in PAGE.splitlines() if "`persistentvolumes`" not in line]
    missing = granted() - described("\n".join(lines))
    assert {(right.verb, right.resource) for right in missing} >= {("patch", "persistentvolumes")}
    assert not described(PAGE.replace("`pods/binding`", "`pods`")) >= granted()


def test_these_are_all_accounts() -> None:
    every = manifests()
    made = {d["metadata"]["name"] for d in every if d["kind"] == "ServiceAccount"}
    bound = {
        (subject["kind"], subject["namespace"], subject["name"])
        for each in every
        if each["kind"] in BINDINGS
        for subject in each["subjects"]
    }
    assert made == {AGENT_ACCOUNT, CENTRAL_ACCOUNT}
    assert bound <= {("ServiceAccount", NAMESPACE, name) for name in made}
    assert all(f"`{name}`" in PAGE for name in made)


@pytest.mark.parametrize("resource", ["pods", "pods/ephemeralcontainers", "pods/exec"])
def test_no_right_changes_running_containers(resource: str) -> None:
    """An image of an agent would be root on every node with a GPU."""
    verbs = {right.verb for right in granted() if right.resource == resource}
    assert not verbs & {"patch", "update"}
    assert resource == "pods" or not verbs
    assert not {right for right in granted() if "*" in (right.verb, right.resource)}


SCHEDULERS = {"ClusterRole lockstep-central", "Role lockstep-central"}


def test_without_the_role_for_jobs_no_pod_is_created() -> None:
    held = {right for right in granted() if right.role in SCHEDULERS}
    made = ("pods", "roles.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io")
    changed = (
        "validatingwebhookconfigurations.",
        "mutatingwebhookconfigurations.",
        "customresourcedefinitions.",
    )
    verbs = {
        right.verb for right in held if right.resource in made or right.resource.startswith(changed)
    }
    assert verbs <= {"get", "list", "watch", "delete"}
    assert "delete" not in {right.verb for right in held if right.resource in made[1:]}
    read = {right.name for right in held if right.resource == "secrets" and right.verb != "create"}
    assert read == {"lockstep-central-tls"}


def test_no_shipped_role_may_name_any_queue() -> None:
    every = {right for each in manifests() if each["kind"] in ROLES for right in rights(each)}
    assert len(every) > 100
    assert not [
        each for each in every if each.verb in ("use", "*") and each.resource.startswith("queues")
    ]

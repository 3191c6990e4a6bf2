"""The list of places where objects name a queue is what the scheduler reads, no more and no less; the policy of the
component `tenants` has every one of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from central.kube.decode.gang_rules import WELL_KNOWN
from central.model.facts import QueueSeen
from central.model.json_types import Json
from protos import names
from tests.central.poison import corpus
from tests.central.poison.by_field.field_walk import Path, paths
from tests.central.poison.tenants import bundles
from tests.central.poison.tenants.bundles import NAME, SPACE, Bundle, owned
from tests.central.poison.tenants.two_tenants import Tenant, TwoTenants, Written, facts_of, nodes
from tests.manifests import queue_policy
from tests.manifests.manifests import documents
from tests.manifests.queue_places import MADE_FROM, READ

QUEUE = "theirs"
NOTES = {value for value in vars(names).values() if isinstance(value, str) and "queue" in value}


def _of_rule(kind: str) -> Bundle:
    """An object that makes its pods a gang, with one pod."""
    rule = next(rule for rule in WELL_KNOWN if rule.resource.full_name == kind)

    def made() -> list[Written]:
        [(_, pod)] = bundles.single_pod()
        pod["metadata"]["labels"] |= dict(zip(rule.labels, (NAME, "0"), strict=False))
        owner = {"apiVersion": "x/v1", "kind": rule.owners[0], "name": NAME, "uid": "u"}
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        raw = {"metadata": {**pod["metadata"], "name": NAME, "uid": "u"}, "spec": {"queue": ""}}
        del raw["metadata"]["ownerReferences"]
        return [(kind, raw), ("pods", pod)]

    return made


def _owner(kind: str) -> Bundle:
    def made() -> list[Written]:
        (_, raw), *pods = bundles.deployment()
        raw["spec"] = {"queue": "", "template": {"metadata": {"annotations": {}}}}
        return [(kind, raw), *pods]

    return made


def _namespace() -> list[Written]:
    meta: Json = {"name": SPACE, "annotations": {}, "labels": {}}
    return [("namespaces", {"metadata": meta}), *bundles.single_pod()]


def _patching_flow() -> list[Written]:
    template, (kind, flow) = bundles.job_flow()
    flow["spec"]["flows"] = [{"name": NAME, "patch": {"jobSpec": bundles.job()[0][1]["spec"]}}]
    return [template, (kind, flow)]


CASES: dict[str, tuple[Bundle, ...]] = {
    "pods": (bundles.single_pod, bundles.group_by_label),
    "namespaces": (_namespace,),
    corpus.GROUPS: (bundles.pods_with_group,),
    "podgroups.scheduling.k8s.io": (bundles.native_group,),
    corpus.JOBS: (bundles.job,),
    corpus.CRONS: (bundles.cron_job,),
    corpus.TEMPLATES: (bundles.job_flow,),
    corpus.FLOWS: (_patching_flow,),
    **{kind: (_owner(kind),) for kind in ("replicasets.apps", "statefulsets.apps", "jobs.batch")},
    **{rule.resource.full_name: (_of_rule(rule.resource.full_name),) for rule in WELL_KNOWN},
}


def places(raw: Any) -> Iterator[Path]:
    """Every text, and the annotations and labels that may say a queue, of the object and of all templates in it."""
    for path in ((), *paths(raw)):
        at = raw
        for key in path:
            at = at[key]
        if isinstance(at, str) and path[:1] != ("metadata",):
            yield path
        if path[-1:] == ("metadata",):
            for part in ("annotations", "labels"):
                yield from ((*path, part, note) for note in NOTES)
        if path[-1:] == ("spec",):
            yield (*path, "queue")


def put(raw: Any, path: Path, text: str) -> None:
    for key in path[:-1]:
        raw = raw.setdefault(key, {}) if isinstance(raw, dict) else raw[key]
    raw[path[-1]] = text


def shown(path: Path) -> str:
    """As in the list."""
    if path[-2:-1] == ("annotations",) and path[-1] == names.QUEUE_NAME:
        path = path[:-2]
    return ".".join(map(str, path)).replace(".0", "[]")


def read_in(kind: str, bundle: Bundle) -> set[str]:
    """The places of the kind's objects where the scheduler reads a queue."""
    world = TwoTenants([*nodes(), QueueSeen("default", uid="u"), QueueSeen(QUEUE, uid="v")])
    number = next(at for at, (each, _) in enumerate(bundle()) if each == kind)
    tried = dict(enumerate(places(bundle()[number][1])))
    for case, path in tried.items():
        written = owned(bundle(), Tenant(str(case)), f"c{case}")
        raw = written[number][1]
        if "uid" in raw["metadata"]:
            raw["metadata"]["uid"] += f"-{case}"
            for _, other in written:
                for owner in other["metadata"].get("ownerReferences", ()):
                    owner["uid"] += f"-{case}" * (owner["kind"] != "Deployment")
        put(raw, path, QUEUE)
        world.cycle(facts_of(written), after_s=0.1)
    for after_s in (10.0, 60.0, 1.0, 1.0, 1.0):
        world.cycle(after_s=after_s)
    charged = {
        gang.namespace for gang in world.scheduler.state.gangs.values() if gang.queue == QUEUE
    }
    return {shown(path) for case, path in tried.items() if Tenant(str(case)).space in charged}


@pytest.mark.parametrize("kind", READ)
def test_the_list_is_what_is_read(kind: str) -> None:
    found = set[str]().union(*(read_in(kind, bundle) for bundle in CASES[kind]))
    assert found == set(READ[kind])


def test_the_policy_asks_about_every_kind_and_place() -> None:
    policy, _ = documents(queue_policy.FILE)
    [rule] = policy["spec"]["matchConstraints"]["resourceRules"]
    for kind in {*READ, *MADE_FROM}:
        plural, _, group = kind.partition(".")
        assert group in rule["apiGroups"]
        assert {plural, f"{plural}/status"} <= {*rule["resources"]}
    assert rule["operations"] == ["CREATE", "UPDATE"]
    assert queue_policy.FILE.read_text() == queue_policy.text(), "write it again: make reference"

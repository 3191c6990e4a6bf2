"""The standalone API as the real kubernetes client finds it: objects, their subresources and what goes with them."""

import json
import threading
from contextlib import suppress

import pytest
from kubernetes import client as kubernetes
from kubernetes.client.exceptions import ApiException

from central.standalone.apiserver import StandaloneApi
from tests.central.custom_resources import DEFINITIONS
from tests.central.standalone.api_caller import (
    GROUPS,
    MERGE,
    PATCH,
    PODS,
    STRATEGIC,
    Caller,
    Json,
    binding,
    pod,
    refusal,
)


def test_typed_clients_are_served_too(call: Caller) -> None:
    namespaces = call.core.list_namespace().items
    assert [found.metadata and found.metadata.name for found in namespaces] == [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]
    made = call.core.create_namespaced_config_map(
        "default",
        kubernetes.V1ConfigMap(metadata=kubernetes.V1ObjectMeta(name="c"), data={"k": "v"}),
    )
    assert made.metadata is not None
    assert made.metadata.uid
    assert call.core.read_namespaced_config_map("c", "default").data == {"k": "v"}
    assert kubernetes.VersionApi(call.api).get_code().major == "1"


def test_pods_get_what_the_server_fills_in(call: Caller) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    call("POST", classes, {"metadata": {"name": "high"}, "value": 7})
    made = call("POST", PODS, pod("p", priorityClassName="high"))
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["priority"] == 7
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"a.b/gpu": "2"}
    assert made["kind"] == "Pod"


def test_a_container_names_the_device_claims_of_its_pod(call: Caller) -> None:
    named = pod("p", resourceClaims=[{"name": "g", "resourceClaimName": "c"}])
    named["spec"]["containers"][0]["resources"]["claims"] = [{"name": "g"}]
    made = call("POST", PODS, named)["spec"]["containers"][0]["resources"]
    assert (made["claims"], made["requests"]) == ([{"name": "g"}], {"a.b/gpu": "2"})


def test_what_is_refused(call: Caller) -> None:
    call("POST", PODS, pod("p"))
    assert refusal(lambda: call("POST", PODS, pod("p"))) == (409, 'pods "p" already exists')
    assert refusal(lambda: call("GET", f"{PODS}/q")) == (404, 'pods "q" not found')
    assert refusal(lambda: call("POST", PODS, pod("BAD")))[0] == 422
    assert refusal(lambda: call("POST", PODS, {"metadata": {"name": "x"}, "spec": {}}))[0] == 422
    assert refusal(lambda: call("POST", PODS, pod("x", priorityClassName="no")))[0] == 403
    elsewhere = "/api/v1/namespaces/nowhere/pods"
    assert refusal(lambda: call("POST", elsewhere, pod("x"))) == (
        404,
        'namespaces "nowhere" not found',
    )
    assert refusal(lambda: call("GET", "/apis/no.such/v1/things"))[0] == 404
    assert refusal(lambda: call("POST", PODS, ["no", "object"]))[0] == 400
    moved = {"spec": {"nodeName": "n1"}}
    assert refusal(lambda: call("PATCH", f"{PODS}/p", moved, MERGE))[0] == 422
    assert refusal(lambda: call("PATCH", f"{PODS}/p", {}, "text/plain"))[0] == 415


def test_stale_versions_are_refused_whatever_the_verb(call: Caller) -> None:
    old = call("POST", GROUPS, {"metadata": {"name": "g"}, "spec": {"minMember": 1}})
    call("PATCH", f"{GROUPS}/g", {"spec": {"minMember": 2}}, MERGE)
    assert refusal(lambda: call("PUT", f"{GROUPS}/g", old))[0] == 409
    stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "spec": {}}
    assert refusal(lambda: call("PATCH", f"{GROUPS}/g", stale, MERGE))[0] == 409
    other = {"preconditions": {"uid": "another"}}
    assert refusal(lambda: call("DELETE", f"{GROUPS}/g", other))[0] == 409
    fresh = call("GET", f"{GROUPS}/g")
    assert fresh["metadata"]["generation"] == 2
    fresh["spec"]["minMember"] = 3
    assert call("PUT", f"{GROUPS}/g", fresh)["spec"]["minMember"] == 3


def test_patches_of_every_kind(call: Caller) -> None:
    call("POST", PODS, pod("p", metadata={"labels": {"a": "b"}}))
    assert call("PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": None, "c": "d"}}}, MERGE)[
        "metadata"
    ]["labels"] == {"c": "d"}
    for status in ("False", "True"):
        conditions = [{"type": "Ready", "status": status}, {"type": status, "status": "True"}]
        shown = call("PATCH", f"{PODS}/p/status", {"status": {"conditions": conditions}}, STRATEGIC)
    assert [one["type"] for one in shown["status"]["conditions"]] == ["Ready", "False", "True"]
    operations = [{"op": "replace", "path": "/metadata/labels/c", "value": "e"}]
    assert call("PATCH", f"{PODS}/p", operations, PATCH)["metadata"]["labels"] == {"c": "e"}
    call("POST", GROUPS, {"metadata": {"name": "g"}})
    assert refusal(lambda: call("PATCH", f"{GROUPS}/g", {}, STRATEGIC))[0] == 415


def test_the_status_of_a_pod_takes_labels_and_annotations(call: Caller) -> None:
    """But no owner; a custom resource's takes nothing else."""
    call("POST", PODS, pod("p", metadata={"labels": {"a": "b"}}))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}
    marks = {"labels": {"c": "d"}, "annotations": {"e": "f"}, "ownerReferences": [owner]}
    patch = {"metadata": marks, "spec": {"nodeName": "n"}}
    found = call("PATCH", f"{PODS}/p/status", patch, MERGE)
    assert found["metadata"]["labels"] == {"a": "b", "c": "d"}
    assert found["metadata"]["annotations"] == {"e": "f"}
    assert "ownerReferences" not in found["metadata"]
    assert "nodeName" not in found["spec"]
    queues = "/apis/scheduling.volcano.sh/v1beta1/queues"
    call("POST", queues, {"metadata": {"name": "q"}})
    found = call("PATCH", f"{queues}/q/status", {"metadata": marks}, MERGE)
    assert not {"labels", "annotations"} & found["metadata"].keys()


def test_a_pod_is_bound_once(call: Caller) -> None:
    call("POST", PODS, pod("p"))
    answer = call("POST", f"{PODS}/p/binding", binding("p", "n1"))
    assert answer["status"] == "Success"
    bound = call("GET", f"{PODS}/p")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["status"]["conditions"][0]["type"] == "PodScheduled"
    code, why = refusal(lambda: call("POST", f"{PODS}/p/binding", binding("p", "n2")))
    assert code == 409
    assert 'pod p is already assigned to node "n1"' in why
    assert refusal(lambda: call("POST", f"{PODS}/q/binding", binding("q", "n1")))[0] == 404


def test_only_one_of_many_binders_wins(call: Caller) -> None:
    call("POST", PODS, pod("p"))
    won: list[str] = []

    def bind(node: str) -> None:
        with suppress(ApiException):
            call("POST", f"{PODS}/p/binding", binding("p", node))
            won.append(node)

    threads = [threading.Thread(target=bind, args=(f"n{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [call("GET", f"{PODS}/p")["spec"]["nodeName"]]


def test_selectors(call: Caller) -> None:
    for name in ("a", "b", "c"):
        call("POST", PODS, pod(name, metadata={"labels": {"name": name}}))
    call("POST", f"{PODS}/b/binding", binding("b", "n1"))

    def names(**query: str) -> list[str]:
        listed = call("GET", "/api/v1/pods", **query)
        return [item["metadata"]["name"] for item in listed["items"]]

    assert names(labelSelector="name%20in%20(a,c)") == ["a", "c"]
    assert names(fieldSelector="spec.nodeName%3Dn1") == ["b"]
    assert names(fieldSelector="spec.nodeName!%3D,spec.schedulerName%3Dlockstep") == ["b"]
    assert names(fieldSelector="metadata.name%3Dc", labelSelector="name") == ["c"]
    assert refusal(lambda: names(fieldSelector="spec.colour%3Dred"))[0] == 400


def test_deletion_waits_for_the_kubelet_of_a_bound_pod(call: Caller) -> None:
    for name in ("free", "bound"):
        call("POST", PODS, pod(name))
    call("POST", f"{PODS}/bound/binding", binding("bound", "n1"))
    call("DELETE", f"{PODS}/free")
    assert refusal(lambda: call("GET", f"{PODS}/free"))[0] == 404
    marked = call("DELETE", f"{PODS}/bound")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert "deletionTimestamp" in call("GET", f"{PODS}/bound")["metadata"]
    code, why = refusal(lambda: call("POST", f"{PODS}/bound/binding", binding("bound", "n2")))
    assert code == 409
    assert "being deleted" in why
    call("DELETE", f"{PODS}/bound", {"gracePeriodSeconds": 0})
    assert call("GET", PODS)["items"] == []


def test_collections_and_namespaces_go_with_what_is_in_them(call: Caller) -> None:
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    pods = "/api/v1/namespaces/team/pods"
    for name in ("a", "b"):
        call("POST", pods, pod(name, metadata={"labels": {"name": name}}))
    call("DELETE", pods, labelSelector="name%3Da")
    assert [item["metadata"]["name"] for item in call("GET", pods)["items"]] == ["b"]
    call("DELETE", "/api/v1/namespaces/team")
    assert call("GET", "/api/v1/pods")["items"] == []


def test_a_resize_changes_resources_and_nothing_else(call: Caller) -> None:
    made = call("POST", PODS, pod("p"))
    main = made["spec"]["containers"][0]
    asked = {"containers": [{**main, "resources": {"requests": {"cpu": "6"}}}]}
    assert refusal(lambda: call("PATCH", f"{PODS}/p", {"spec": asked}, MERGE))[0] == 422
    found = call("PATCH", f"{PODS}/p/resize", {"spec": asked, "status": {"phase": "Failed"}}, MERGE)
    assert found["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "6"}}
    assert found["status"] == made["status"]
    whole = {"resources": {"requests": {"cpu": "7"}}}
    found = call("PATCH", f"{PODS}/p/resize", {"spec": whole}, MERGE)
    assert found["spec"]["resources"] == whole["resources"]
    for other in ({"nodeName": "n"}, {"containers": [{**main, "image": "other"}]}):
        code, _ = refusal(lambda: call("PATCH", f"{PODS}/p/resize", {"spec": other}, MERGE))  # noqa: B023
        assert code == 422


def test_evictions_ask_the_budget(call: Caller) -> None:
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    for name in ("a", "b"):
        call("POST", PODS, pod(name, metadata={"labels": {"app": "x"}}))
        call("PATCH", f"{PODS}/{name}/status", ready, MERGE)
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    call("POST", budgets, {"metadata": {"name": "keep"}, "spec": spec})
    assert call("GET", f"{budgets}/keep")["status"]["disruptionsAllowed"] == 1
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    assert call("POST", f"{PODS}/a/eviction?dryRun=All", eviction)["status"] == "Success"
    assert call("GET", f"{budgets}/keep")["status"]["disruptionsAllowed"] == 1
    assert call("POST", f"{PODS}/a/eviction", eviction)["status"] == "Success"
    code, why = refusal(lambda: call("POST", f"{PODS}/b/eviction", eviction))
    assert (code, why) == (429, "Cannot evict pod as it would violate the pod's disruption budget.")
    assert call("GET", f"{budgets}/keep")["status"]["disruptionsAllowed"] == 0


def test_tokens_say_which_pod_they_are_of(call: Caller) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    call("POST", accounts, {"metadata": {"name": "agent"}})
    made = call("POST", PODS, pod("p", serviceAccountName="agent"))
    bound = {"kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]}
    spec = {"audiences": ["centre"], "boundObjectRef": bound}
    token = call("POST", f"{accounts}/agent/token", {"spec": spec})["status"]["token"]

    def review(text: str, *audiences: str) -> Json:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        asked = {"spec": {"token": text, "audiences": list(audiences)}}
        answer: Json = call("POST", path, asked)["status"]
        return answer

    good = review(token, "centre", "other")
    assert good["authenticated"]
    assert good["audiences"] == ["centre"]
    assert good["user"]["username"] == "system:serviceaccount:default:agent"
    assert good["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    assert not review(token)["authenticated"]
    assert not review(token[:-2] + "xx", "centre")["authenticated"]
    assert not review("nonsense", "centre")["authenticated"]
    assert refusal(lambda: call("POST", f"{accounts}/default/token", {"spec": spec}))[0] == 400
    call("DELETE", f"{PODS}/p")
    assert "deleted" in review(token, "centre")["error"]


def test_a_definition_serves_its_kind_and_checks_it(call: Caller) -> None:
    path = "/apis/example.com/v1alpha1/racks"
    assert refusal(lambda: call("GET", path))[0] == 404
    tier = {"type": "integer", "minimum": 1}
    schema = {"type": "object", "properties": {"spec": {"properties": {"tier": tier}}}}
    spec = {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"plural": "racks", "kind": "Rack"},
        "versions": [{"name": "v1alpha1", "storage": True, "schema": {"openAPIV3Schema": schema}}],
    }
    name = "racks.example.com"
    made = call("POST", DEFINITIONS, {"metadata": {"name": name}, "spec": spec})
    assert {one["type"] for one in made["status"]["conditions"]} == {"NamesAccepted", "Established"}
    call("POST", path, {"metadata": {"name": "h"}, "spec": {"tier": 1, "unknown": 2}})
    assert call("GET", path)["items"][0]["spec"] == {"tier": 1}
    code, why = refusal(
        lambda: call("POST", path, {"metadata": {"name": "i"}, "spec": {"tier": 0}})
    )
    assert code == 422
    assert "spec.tier" in why
    call("DELETE", f"{DEFINITIONS}/{name}")
    assert refusal(lambda: call("GET", path))[0] == 404


def test_discovery_and_tables_as_kubectl_asks(call: Caller) -> None:
    groups = [group["name"] for group in call("GET", "/apis")["groups"]]
    assert {"batch", "scheduling.volcano.sh", "policy"} <= set(groups)
    core = call("GET", "/api/v1")["resources"]
    assert {"pods", "pods/binding", "pods/status", "nodes"} <= {one["name"] for one in core}
    call("POST", PODS, pod("p"))
    response = call.api.rest_client.pool_manager.request(
        "GET",
        f"{call.api.configuration.host}{PODS}",
        headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"},
    )
    table = json.loads(response.data)
    assert table["kind"] == "Table"
    assert table["rows"][0]["cells"][:4] == ["p", "0/1", "Pending", 0]
    assert table["rows"][0]["object"]["metadata"]["namespace"] == "default"


def test_a_taken_port_is_an_error_at_once(api: StandaloneApi) -> None:
    port = int(api.url.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        StandaloneApi(port=port).start()


def test_what_an_object_owned_goes_with_it(call: Caller) -> None:
    def owned(name: str, uid: str) -> Json:
        owner = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        meta = {"name": name, "ownerReferences": [{**owner, "name": "g", "uid": uid}]}
        return {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"}]}}

    group = {"metadata": {"name": "g"}, "spec": {"minMember": 1}}
    uid = call("POST", GROUPS, group)["metadata"]["uid"]
    call("POST", PODS, owned("p", uid))
    call("POST", PODS, owned("of-another-life", "gone"))
    assert [pod["metadata"]["name"] for pod in call("GET", PODS)["items"]] == ["p"]
    call("DELETE", f"{GROUPS}/g")
    assert call("GET", PODS)["items"] == []
    uid = call("POST", GROUPS, group)["metadata"]["uid"]
    call("POST", PODS, owned("p", uid))
    call("DELETE", f"{GROUPS}/g", {"propagationPolicy": "Orphan"})
    assert [pod["metadata"]["name"] for pod in call("GET", PODS)["items"]] == ["p"]


def test_a_job_is_scaled(call: Caller) -> None:
    jobs = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    spec = {"tasks": [{"replicas": 2, "template": template}]}
    call("POST", jobs, {"metadata": {"name": "j"}, "spec": spec})
    assert refusal(lambda: call("GET", f"{jobs}/j/scale"))[0] == 500, "as the API server has it"
    scaled = call("PATCH", f"{jobs}/j/scale", {"spec": {"replicas": 5}}, MERGE)
    assert (scaled["kind"], scaled["spec"]) == ("Scale", {"replicas": 5})
    assert call("GET", f"{jobs}/j/scale")["spec"]["replicas"] == 5
    there = call("GET", f"{jobs}/j")
    assert there["spec"]["replicas"] == 5
    assert there["spec"]["tasks"][0]["replicas"] == 2
    scaled["spec"]["replicas"] = -1
    assert refusal(lambda: call("PUT", f"{jobs}/j/scale", scaled))[0] == 422
    apply = "application/apply-patch+yaml"
    code, _ = refusal(lambda: call("PATCH", f"{jobs}/j/scale", scaled, apply))
    assert code == 500, "a Scale of a custom resource cannot be applied"


def test_shipped_definitions_are_served_from_the_start(call: Caller) -> None:
    jobs = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
    template = {"spec": {"containers": [{"name": "main", "image": "busybox", "new-in-1.50": {}}]}}
    task = {"replicas": 2, "template": template, "colour": "red"}
    made = call("POST", jobs, {"metadata": {"name": "j"}, "spec": {"tasks": [task]}})
    assert made["spec"] == {
        "queue": "default",
        "maxRetry": 3,
        "tasks": [{"replicas": 2, "template": template}],
    }
    again = {"event": "PodFailed", "exitCode": 3, "action": "RestartJob"}
    broken = {"tasks": [task], "policies": [again]}
    code, why = refusal(lambda: call("POST", jobs, {"metadata": {"name": "k"}, "spec": broken}))
    assert code == 422
    assert "spec.policies[0]" in why
    for path in (
        "/apis/batch.volcano.sh/v1alpha1/cronjobs",
        "/apis/bus.volcano.sh/v1alpha1/commands",
        "/apis/flow.volcano.sh/v1alpha1/jobflows",
        "/apis/flow.volcano.sh/v1alpha1/jobtemplates",
        "/apis/scheduling.volcano.sh/v1beta1/queues",
        "/apis/topology.volcano.sh/v1alpha1/hypernodes",
    ):
        assert call("GET", path)["items"] == []

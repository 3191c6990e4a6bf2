"""What clients learn about groups, and the columns of kubectl for nodes."""

import json

from tests.central.standalone.api_caller import Caller

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def test_a_group_has_a_document(call: Caller) -> None:
    one = call("GET", "/apis/batch.volcano.sh")
    assert (one["kind"], one["name"]) == ("APIGroup", "batch.volcano.sh")
    assert one["preferredVersion"]["groupVersion"] == "batch.volcano.sh/v1alpha1"
    every = {each["name"]: each for each in call("GET", "/apis")["groups"]}
    assert every["batch.volcano.sh"]["versions"] == one["versions"]
    assert call.open("GET", "/apis/no.such.group").status == 404


def test_the_columns_of_a_node(call: Caller) -> None:
    info = {"kernelVersion": "6.1", "osImage": "Debian", "kubeletVersion": "v1.36"}
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"nodeInfo": info, "addresses": addresses, "conditions": conditions}
    role = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/gpu": ""}
    call("POST", "/api/v1/nodes", {"metadata": {"name": "n1", "labels": role}, "status": status})
    call("POST", "/api/v1/nodes", {"metadata": {"name": "n2"}, "spec": {"unschedulable": True}})
    url = f"{call.api.configuration.host}/api/v1/nodes"
    pool = call.api.rest_client.pool_manager
    table = json.loads(pool.request("GET", url, headers={"Accept": TABLE}).data)
    titles = [each["name"] for each in table["columnDefinitions"]]
    rows = [dict(zip(titles, row["cells"], strict=True)) for row in table["rows"]]
    one, two = sorted(rows, key=lambda row: row["Name"])
    assert (one["Status"], one["Roles"], one["Version"]) == ("Ready", "gpu,worker", "v1.36")
    assert (one["Internal-IP"], one["OS-Image"], one["Kernel-Version"]) == (
        "10.0.0.1",
        "Debian",
        "6.1",
    )
    assert two["Status"] == "Unknown,SchedulingDisabled"
    assert (two["Roles"], two["Internal-IP"], two["Kernel-Version"]) == (
        "<none>",
        "<none>",
        "<unknown>",
    )

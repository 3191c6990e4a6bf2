"""Valid and invalid pods."""

import pytest

from central.model.facts import PodSeen, PodSpec
from central.model.json_types import Json
from protos import names
from tests.central.kube.raw_objects import container, pod, reader, requests


def test_rdma_limits() -> None:
    asking = container("main", gpu=1)
    asking["resources"]["requests"][names.RDMA] = "1"

    def read(*containers: Json, **values: object) -> PodSpec:
        annotations = {f"lockstep.dev/rdma-hca-{key}": value for key, value in values.items()}
        return reader().pod(pod("p", *containers, metadata={"annotations": annotations})).spec

    plain = read(asking)
    assert (plain.rdma_containers, plain.rdma_limits) == ((("main", 1),), ())
    both = reader()
    assert not both.pod(pod("p", asking)).spec.on_host
    assert both.pod(pod("q", asking, hostNetwork=True)).spec.on_host
    assert not both.pod(pod("r", container("c"), hostNetwork=True)).spec.on_host
    assert read(asking, handles="64", objects="max").rdma_limits == (
        ("hca_handle", 64),
        ("hca_object", -1),
    )
    assert read(asking, objects="0").rdma_limits == (("hca_object", 0),)
    for value in ("010", "-1", "", "0x10", "1.5", "2147483647", "99999999999", "MAX", 7.5):
        assert read(asking, handles=value).unsupported == (
            f'annotation lockstep.dev/rdma-hca-handles: "{value}" is neither a whole number nor max'
        )
    assert read(handles="4").unsupported == (
        "annotation lockstep.dev/rdma-hca-handles: no container asks for lockstep.dev/rdma"
    )


def test_gpu_shares_and_memory_caps() -> None:
    asking = container("main")
    asking["resources"]["requests"][names.GPU_SHARE] = "30"

    def read(*containers: Json, **values: object) -> PodSpec:
        keys = {"cap": names.GPU_MEMORY, "level": names.GPU_MEMORY_LEVEL}
        annotations = {keys[key]: value for key, value in values.items()}
        return reader().pod(pod("p", *containers, metadata={"annotations": annotations})).spec

    plain = read(asking)
    assert (plain.share_containers, plain.memory_cap) == ((("main", 30),), 0)
    capped = read(asking, cap="24Gi", level="watch")
    assert (capped.memory_cap, capped.memory_level) == (24 * 2**30, "watch")
    assert read(asking, cap="24Gi").memory_level == "none"
    for cap in ("0", "-1Gi", "much", ""):
        assert read(asking, cap=cap).unsupported.startswith(f"annotation {names.GPU_MEMORY}: ")
    assert "is not one of none, watch, mps" in read(asking, cap="1Gi", level="sure").unsupported
    assert "there is no lockstep.dev/gpu-memory" in read(asking, level="watch").unsupported
    assert "no container asks for lockstep.dev/gpu-share" in read(cap="1Gi").unsupported
    asking["resources"]["requests"][names.GPU_SHARE] = "101"
    assert "exceeds the 100 hundredths of one GPU" in read(asking).unsupported
    asking["resources"]["requests"] |= {names.GPU_SHARE: "10", names.GPU: "1"}
    assert "whole GPUs or a share, not both" in read(asking).unsupported


def test_gpu_model_and_memory() -> None:
    asking: Json = {"name": "main", "resources": {"limits": {names.GPU: "1"}}}

    def read(*containers: Json, **values: object) -> PodSpec:
        keys = {"model": names.GPU_MODEL, "least": names.GPU_LEAST, "fast": names.GPU_FULL_SPEED}
        annotations = {keys[key]: value for key, value in values.items()}
        return reader().pod(pod("p", *containers, metadata={"annotations": annotations})).spec

    wished = read(asking, model=" H100* ,NVIDIA H200", least="79Gi")
    assert (wished.gpu_models, wished.gpu_memory) == (("h100*", "h200"), 79 << 30)
    assert not wished.unsupported
    slices: Json = {"name": "main", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}
    assert read(slices, model="A100").gpu_models == ("a100",)
    assert "it names no model" in read(asking, model=" , ").unsupported
    assert (read(asking, fast="true").full_speed, read(asking, fast="false").full_speed) == (
        True,
        False,
    )
    assert "is neither true nor false" in read(asking, fast="yes").unsupported
    assert "is not a positive size" in read(asking, least="0").unsupported
    assert read(asking, least="big").unsupported.startswith(f"annotation {names.GPU_LEAST}: ")
    assert "no container asks for GPUs" in read({"name": "main"}, model="H100").unsupported


def test_an_attribute_that_is_the_same_in_the_gang() -> None:
    def read(value: object) -> PodSpec:
        annotations = {names.SAME_ATTRIBUTE: value}
        return reader().pod(pod("p", {"name": "main"}, metadata={"annotations": annotations})).spec

    assert read("gpu.example/rail").same_attribute == "gpu.example/rail"
    for wrong in ("rail", "/rail", "gpu.example/"):
        assert "is not like gpu.nvidia.com/rail" in read(wrong).unsupported
    assert f"{names.SAME_ATTRIBUTE}: 302 characters" in read("g/" + "x" * 300).unsupported


def test_mig_slices() -> None:
    one, two = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1c.3g.20gb"

    def read(*asked: dict[str, str], **annotations: str) -> PodSpec:
        containers = [container(f"c{place}") for place in range(len(asked))]
        for each, wants in zip(containers, asked, strict=True):
            each["resources"] = {"limits": wants}
        keys = {"cap": names.GPU_MEMORY, "level": names.GPU_MEMORY_LEVEL}
        meta = {"annotations": {keys[key]: value for key, value in annotations.items()}}
        return reader().pod(pod("p", *containers, metadata=meta)).spec

    spec = read({one: "2"}, {two: "1"}, {names.GPU: "1"})
    assert not spec.unsupported
    assert (spec.request(one), spec.request(two), spec.request(names.GPU)) == (2, 1, 1)
    for other in (two, names.GPU, names.GPU_SHARE):
        said = read({"cpu": "1"}, {one: "1", other: "1"}).unsupported
        assert said.startswith("spec.containers[1].resources: ")
        assert "a container sees GPUs or MIG slices of one profile, not both" in said
    assert not read({one: "1"}, level="mig").unsupported
    assert not read({one: "1"}, level="kernel").unsupported  # as surely
    assert "share their memory with others (none)" in read({two: "1"}, level="watch").unsupported
    assert "is not one of none, watch" in read({one: "1"}, level="much").unsupported
    assert "the profile of" in read({one: "1"}, cap="4Gi").unsupported


def test_a_pod_has_ended_when_its_last_container_did_or_its_deletion_was_asked_for() -> None:
    def ended(phase: str, *ends: str, **meta: object) -> float | None:
        raw = pod(metadata=meta)
        states: list[Json] = [{"terminated": {"finishedAt": end} if end else None} for end in ends]
        raw["status"] = {"phase": phase, "containerStatuses": [{"state": each} for each in states]}
        return reader().pod(raw).ended

    first, last = "1970-01-01T00:01:00Z", "1970-01-01T00:02:00Z"
    deleted = {"deletionTimestamp": last, "deletionGracePeriodSeconds": 30}
    assert ended("Running", first, "") is None
    assert ended("Succeeded", first, last) == 120.0
    assert ended("Failed") is None
    assert ended("Running", "", **deleted) == 90.0
    assert ended("Succeeded", first, **deleted) == 60.0
    assert ended("Failed", last, **deleted) == 90.0
    assert ended("Failed", **deleted) == 90.0


def test_expected_run_time() -> None:
    raw = pod(metadata={"annotations": {names.RUNS_FOR: "1h30m"}}, preemptionPolicy="Never")
    raw["status"]["startTime"] = "1970-01-01T00:01:00Z"
    seen = reader().pod(raw)
    assert (seen.runs_for_s, seen.started, seen.preempts) == (5400.0, 60.0, False)
    plain = reader().pod(pod())
    assert (plain.runs_for_s, plain.started, plain.preempts) == (None, None, True)
    saved = {names.CHECKPOINT: "1970-01-01T00:02:00Z"}
    assert reader().pod(pod(metadata={"annotations": saved})).checkpoint == 120.0
    assert reader().pod(pod(metadata={"annotations": {names.CHECKPOINT: "?"}})).checkpoint is None
    odd = pod(metadata={"annotations": {names.RUNS_FOR: "soon"}})
    assert reader().pod(odd).spec.unsupported == (
        'annotation lockstep.dev/runs-for: "soon" is not a duration like 90s or 1h30m'
    )
    odd["spec"]["schedulerName"] = "other"
    assert not reader().pod(odd).spec.unsupported


def test_preemptable_is_an_annotation_or_a_label() -> None:
    key = "volcano.sh/preemptable"

    def preemptable(**where: str) -> bool | None:
        metadata = {kind: {key: value} for kind, value in where.items()}
        return reader().pod(pod(metadata=metadata)).preemptable

    assert preemptable() is None
    assert preemptable(annotations="false") is False
    assert preemptable(labels="F") is False
    assert preemptable(annotations="true", labels="false") is True
    assert preemptable(labels="1") is True
    raw = pod(metadata={"annotations": {key: "yes"}})
    wrong = f'annotation {key}: "yes" is neither true nor false'
    assert (reader().pod(raw).preemptable, reader().pod(raw).spec.unsupported) == (False, wrong)


def test_cooldown_time_is_a_duration() -> None:
    key = "volcano.sh/cooldown-time"
    assert reader().pod(pod(metadata={"annotations": {key: "10m"}})).cooldown_s == 600.0
    wrong = reader().pod(pod(metadata={"annotations": {key: "soon"}})).spec.unsupported
    assert wrong.startswith(f'annotation {key}: "soon" is not a duration')


def test_movable_is_true_or_false() -> None:
    def movable(value: str) -> PodSeen:
        return reader().pod(pod(metadata={"annotations": {names.MOVABLE: value}}))

    assert movable("true").movable
    assert not movable("false").movable
    assert not reader().pod(pod()).movable
    wrong = 'annotation lockstep.dev/movable: "yes" is neither true nor false'
    assert (movable("yes").movable, movable("yes").spec.unsupported) == (False, wrong)


def test_suspendable_is_true_or_false_or_what_a_suspension_costs() -> None:
    def suspendable(value: str) -> PodSeen:
        return reader().pod(pod(metadata={"annotations": {names.SUSPENDABLE: value}}))

    found = [suspendable(value).suspension_s for value in ("true", "20s", "0s", "false", "soon")]
    assert found == [30.0, 20.0, 0.0, None, None]
    wrong = 'annotation lockstep.dev/suspendable: "soon" is neither true, nor false, nor a duration such as 30s'
    assert suspendable("soon").spec.unsupported == wrong


def test_a_pod_as_the_api_server_sends_it() -> None:
    raw = pod(
        "train-3",
        container("main", gpu=4),
        metadata={
            "creationTimestamp": "2026-11-20T10:00:00Z",
            "annotations": {"scheduling.k8s.io/group-name": "train"},
        },
        priority=7,
        nodeName="n1",
    )
    raw["status"]["phase"] = "Running"
    seen = reader().pod(raw)
    assert (seen.uid, seen.namespace, seen.name) == ("u-train-3", "ns", "train-3")
    assert (seen.gang, seen.gang_min, seen.node, seen.phase) == ("train", None, "n1", "Running")
    assert (seen.priority, seen.order, seen.ours) == (7, (3, "train-3"), True)
    assert seen.created == 1795168800.0
    assert dict(seen.spec.requests) == {"cpu": 1000, "memory": 2**30, names.GPU: 4, "pods": 1}
    assert seen.spec.gpu_containers == (("main", 4),)
    assert seen.spec.unsupported == ""
    assert not seen.gated
    assert not seen.deleting


def test_equal_pods_share_one_spec() -> None:
    read = reader()
    first, second = read.pod(pod("w-0")), read.pod(pod("w-1"))
    assert first.spec is second.spec
    assert read.pod(pod("w-2", container("main", gpu=1))).spec is not first.spec


def test_requests_of_containers_are_summed() -> None:
    assert requests(pod("p", container("a", gpu=2), container("b", gpu=1)))[names.GPU] == 3


def test_an_init_container_adds_to_the_sidecars_before_it() -> None:
    raw = pod(
        "p",
        container("main"),
        initContainers=[
            container("log", restartPolicy="Always"),  # 1 cpu, all the time
            {"name": "fetch", "resources": {"requests": {"cpu": "4"}}},  # 4 + 1
            container("late", restartPolicy="Always"),
        ],
        overhead={"cpu": "250m"},
    )
    assert requests(raw)["cpu"] == 5250
    assert requests(raw)["memory"] == 3 * 2**30


def test_sidecars_come_first_among_the_gpu_containers() -> None:
    raw = pod(
        "p",
        container("main", gpu=2),
        container("cpu-only"),
        initContainers=[
            container("watch", gpu=1, restartPolicy="Always"),
            container("check", gpu=2),
        ],
    )
    seen = reader().pod(raw)
    assert seen.spec.gpu_containers == (("watch", 1), ("main", 2))
    assert seen.spec.request(names.GPU) == 3


@pytest.mark.parametrize(
    ("inits", "main", "found"),
    [
        ([("a", 4, False)], 2, (("main", 2), (names.REST_OF_POD, 2))),
        ([("a", 2, False)], 2, (("main", 2),)),
        ([("a", 3, False)], 2, (("main", 2), (names.REST_OF_POD, 1))),
        ([("a", 1, False), ("b", 3, False)], 0, ((names.REST_OF_POD, 3),)),
        ([("a", 1, True), ("b", 2, False)], 0, (("a", 1), (names.REST_OF_POD, 2))),
        ([("a", 2, False), ("b", 1, True)], 2, (("b", 1), ("main", 2))),
    ],
)
@pytest.mark.parametrize("scheduler", ["lockstep", "default-scheduler"])
@pytest.mark.parametrize("resource", [names.GPU, names.GPU_SHARE])
def test_what_only_init_containers_use_is_planned_for_the_rest_of_the_pod(
    inits: list[tuple[str, int, bool]],
    main: int,
    found: tuple[tuple[str, int], ...],
    scheduler: str,
    resource: str,
) -> None:
    def asking(name: str, count: int, **fields: object) -> Json:
        return {"name": name, "resources": {"limits": {resource: str(count)}}, **fields}

    made = [
        asking(name, count, **({"restartPolicy": "Always"} if sidecar else {}))
        for name, count, sidecar in inits
    ]
    seen = reader().pod(
        pod("p", asking("main", main), initContainers=made, schedulerName=scheduler)
    )
    spec = seen.spec
    assert (spec.gpu_containers if resource == names.GPU else spec.share_containers) == found
    assert spec.request(resource) == sum(count for _, count in found)


def test_a_limit_stands_in_for_a_request() -> None:
    raw = pod("p", {"name": "m", "resources": {"limits": {names.GPU: "8"}}})
    assert requests(raw) == {names.GPU: 8, "pods": 1}


def test_a_pod_without_resources_still_is_one_pod() -> None:
    assert requests(pod("p", {"name": "m"})) == {"pods": 1}


@pytest.mark.parametrize(
    ("metadata", "gang", "least"),
    [
        ({"annotations": {"scheduling.volcano.sh/group-name": "g"}}, "g", None),
        ({"labels": {names.GANG_LABEL: "g"}, "annotations": {names.GANG_MIN: "4"}}, "g", 4),
        ({"labels": {names.GANG_LABEL: "g"}}, "g", None),
        ({"labels": None, "annotations": None}, "", None),
    ],
)
def test_how_a_pod_joins_its_gang(metadata: Json, gang: str, least: int | None) -> None:
    seen = reader().pod(pod(metadata=metadata))
    assert (seen.gang, seen.gang_min, seen.spec.unsupported) == (gang, least, "")


@pytest.mark.parametrize("least", ["0", "x", "-1", "1.5", "", "99999999999"])
def test_an_invalid_minimum_keeps_the_pod_pending(least: str) -> None:
    meta = {"labels": {names.GANG_LABEL: "g"}, "annotations": {names.GANG_MIN: least}}
    assert reader().pod(pod(metadata=meta)).spec.unsupported == (
        f'annotation lockstep.dev/gang-min: "{least}" is not a whole number from 1 to 100000'
    )


def test_pods_of_other_schedulers_count_with_their_resources() -> None:
    raw = pod(metadata={"labels": {names.GANG_LABEL: "g"}}, schedulerName="default-scheduler")
    raw["spec"]["containers"][0]["ports"] = [{"hostPort": 80}]
    seen = reader().pod(raw)
    assert (seen.ours, seen.gang, seen.spec.unsupported) == (False, "", "")
    assert seen.spec.gpu_containers == (("main", 2),)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "spec.affinity.podAffinity",
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}
                }
            },
            "spec.affinity.podAntiAffinity",
        ),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "spec.topologySpreadConstraints"),
        ({"resourceClaims": [{"name": "c"}]}, "spec.resourceClaims"),
        (
            {"containers": [{"name": "m", "resources": {"requests": {"cpu": "abc"}}}]},
            'spec.containers[0].resources.requests.cpu: "abc" is not a quantity',
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "a", "operator": "Near"}]}
                            ]
                        }
                    }
                }
            },
            'spec.affinity.nodeAffinity: "Near" is not an operator',
        ),
        ({"containers": 7}, "spec.containers: its value has the wrong type"),
        ({"containers": [{}], "tolerations": "all"}, "spec.tolerations: 'all' is not a list"),
    ],
)
def test_unsupported_fields_are_named(spec: Json, field: str) -> None:
    assert reader().pod(pod(**spec)).spec.unsupported.startswith(field)

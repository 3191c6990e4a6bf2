"""Each field of a pod that is read, changed, and what that changes in the fact: this, and nothing else."""

import copy
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from central.kube.decode import pod_decoder
from central.kube.decode.fields import DECODE_ERRORS, MalformedObject
from central.model import limits
from central.model.facts import PodSpec
from central.model.json_types import Json
from central.model.pod_rules import Rules
from protos import names
from tests.central.kube.decode.pod_rows import (
    BATCH,
    CALLED,
    INDEX_KEYS,
    MEMBER,
    POD,
    PREFERRED,
    REQUESTS,
    SEEN,
    SPEC,
    TERMS,
    Changes,
    asks,
    changed,
    container,
    controller,
)
from tests.central.kube.raw_objects import reader


@pytest.mark.parametrize(("path", "value", "changes"), CALLED, ids=lambda given: repr(given)[:60])
def test_a_field(path: str, value: Any, changes: Changes) -> None:
    assert reader().pod(POD) == SEEN
    assert reader().pod(changed(POD, path, value)) == replace(SEEN, **changes)


@pytest.mark.parametrize(("path", "value", "changes"), TERMS, ids=lambda given: repr(given)[:200])
def test_a_term(path: str, value: Any, changes: Changes) -> None:
    labelled = changed(POD, "metadata/labels", {"run": "7"})
    expected = replace(SEEN, labels=(("run", "7"),), **changes)
    assert reader().pod(changed(labelled, path, value)) == expected


def test_a_resize_of_an_init_container() -> None:
    """A sidecar, which runs as long as the pod."""
    sidecar = {"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    raw = changed(POD, "spec/initContainers", [sidecar])
    assert reader().pod(raw).spec == asks(cpu=2000)["spec"]
    larger = {"initContainerStatuses": [{"name": "i", "allocatedResources": {"cpu": "3"}}]}
    assert reader().pod({**raw, "status": larger}).spec == asks(cpu=4000)["spec"]


def test_a_pod_of_another_scheduler() -> None:
    """Where it is, what it takes and whom it keeps away; of what it wishes nothing. Its errors are not ours to say."""
    other = changed(POD, "spec/schedulerName", "default-scheduler")
    seen = replace(SEEN, ours=False)
    assert reader().pod(other) == seen
    counts = {"node", "phase", "priority", "created", "deleting", "gated", "started", "preempts"}
    counts |= {"ended", "order", "task", "labels", "claims", "checkpoint", "runs_for_s", "uid", "namespace", "name"}  # fmt: skip
    for path, value, changes in CALLED:
        found = reader().pod(changed(other, path, value))
        kept = {key: each for key, each in changes.items() if key in counts}
        if path.startswith(("spec", "status")):
            pod_spec = changes.get("spec", SPEC)
            apart = pod_spec.rules and Rules(apart=pod_spec.rules.apart, ports=pod_spec.rules.ports)
            kept["spec"] = replace(
                SPEC,
                requests=pod_spec.requests,
                gpu_containers=pod_spec.gpu_containers,
                rules=None if apart == Rules() else apart,
            )
        elif "gpu-m" in path:
            kept["spec"] = changes["spec"]  # read of every pod
        assert found == replace(seen, **kept), (path, value)


def test_a_reader_that_has_seen_other_pods_reads_the_same() -> None:
    """Specs are kept, and shared by pods that are alike."""
    pods = [changed(POD, path, value) for path, value, _ in CALLED]
    for labels in ({"run": "7"}, {"run": "8"}, {"mark": "7"}):
        labelled = changed(POD, "metadata/labels", labels)
        pods += [changed(labelled, path, value) for path, value, _ in TERMS]
    pods += [changed(each, "spec/schedulerName", "default-scheduler") for each in pods]
    pods += [changed(each, "metadata/namespace", "other") for each in pods]
    pods += [changed(each, "spec/hostNetwork", True) for each in pods if "ports" in repr(each)]
    fresh = [reader().pod(each) for each in pods]
    for order in (1, -1):
        one = reader()
        assert [one.pod(each) for each in pods[::order]] == fresh[::order]


def test_what_is_kept_of_pods_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_decoder, "_CACHED_MOST", 10)
    one = reader()
    first = one.pod(POD)
    assert one.pod(copy.deepcopy(POD)).spec is first.spec
    for number in range(11):
        one.pod(changed(POD, "spec/overhead", {"cpu": str(number)}))
    assert one.pod(POD).spec is not first.spec
    assert one.pod(POD).spec == first.spec


def test_a_member_of_a_job() -> None:
    owned = changed(POD, "metadata/ownerReferences", controller("Job", "train", BATCH))
    owned["metadata"]["annotations"] |= {"volcano.sh/task-spec": "w"}
    member = replace(MEMBER, task="w")
    seen = replace(SEEN, task="w", part=member, owner="o", owner_name="job/train")
    assert reader().pod(owned) == seen
    for status, changes in (
        ({"conditions": [{"type": "Ready", "status": "True"}]}, {"ready": True}),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, {}),
        ({"containerStatuses": [{"name": "main", "restartCount": 2}]}, {"restarts": 2}),
    ):
        found = reader().pod({**owned, "status": status})
        assert found == replace(seen, part=replace(member, **changes)), status
    batch = changed(owned, "metadata/ownerReferences", controller("Job", "train", "batch/v1"))
    assert reader().pod(batch).part is None


def test_the_role_by_the_gangs_own_labels() -> None:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "j",
        "jobset.sigs.k8s.io/replicatedjob-name": "driver",
    }
    made = changed(POD, "metadata/labels", labels)
    assert reader().pod(made).task == "", "without a controller it is in no gang"
    made["metadata"]["ownerReferences"] = controller("Job", "j-driver-0")
    seen = reader().pod(made)
    assert (seen.gang, seen.task) == ("jobset/j", "driver")
    made["metadata"]["annotations"]["volcano.sh/task-spec"] = "own"
    assert reader().pod(made).task == "own"
    del made["metadata"]["annotations"]["volcano.sh/task-spec"]
    made["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "else"
    seen = reader().pod(made)
    assert (seen.gang, seen.task) == ("else", ""), (
        "the label is the JobSet's, and so is no role of this gang"
    )
    long = {**labels, "jobset.sigs.k8s.io/replicatedjob-name": "d" * 300}
    assert reader().pod(changed(made, "metadata/annotations", {}) | {}).task == "driver"
    made = changed(changed(made, "metadata/annotations", {}), "metadata/labels", long)
    assert reader().pod(made).task == "d" * limits.NAME


# --- what is wrong with a pod ------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value"),
    [("metadata/uid", None), ("metadata/name", None), ("metadata/namespace", None), ("metadata/name", "a\n"),
     ("spec", None), ("metadata/creationTimestamp", "x"), ("status/phase", 7), ("spec/nodeName", "n" * 254),
     ("spec/priority", "7")],
)  # fmt: skip
def test_a_pod_that_nothing_can_refer_to(path: str, value: Any) -> None:
    with pytest.raises(MalformedObject):
        reader().pod(changed({**POD, "status": {"phase": "Pending"}}, path, value))


def selector(rest: int) -> dict[str, str]:
    """A selector of 32,562 characters and one more key with a value of this length."""
    found = {f"example.com/{each:03}" + "y" * 50: "x" * 63 for each in range(243)}
    return {**found, "k": "x" * rest}


LONG = "n" * (limits.NAME + 1)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("metadata/labels", {"a": 7}, "metadata.labels.a: 7 is not the value of a label"),
        ("metadata/labels", {str(each): "" for each in range(limits.LABELS + 1)}, f"metadata.labels: {limits.LABELS + 1} entries; at most {limits.LABELS} are accepted"),
        ("metadata/labels", {"key": "x" * (limits.LABELS_TEXT - 2)}, f"metadata.labels: {limits.LABELS_TEXT + 1} characters; at most {limits.LABELS_TEXT} are accepted"),
        ("metadata/annotations/volcano.sh~task-spec", LONG, f"{names.TASK}: {limits.NAME + 1} characters; at most {limits.NAME} are accepted"),
        ("metadata/annotations/scheduling.volcano.sh~queue-name", 7, f"{names.QUEUE_NAME}: 7 is not a string"),
        ("spec/nodeSelector", ["a"], "spec.nodeSelector: [1 entries] is not an object"),
        ("spec/affinity", 7, "spec.affinity: its value has the wrong type"),
    ],
    ids=lambda given: repr(given)[:50],
)  # fmt: skip
def test_a_field_that_is_wrong(path: str, value: Any, sentence: str) -> None:
    """The pod is seen with all that can be read, what it takes above all, and with the sentence."""
    wrong = changed(changed(POD, "spec/nodeName", "n1"), path, value)
    found = reader().pod(wrong)
    assert (found.spec.unsupported, found.node, found.labels, found.task, found.queue) == (
        sentence,
        "n1",
        (),
        "",
        "",
    )
    assert found.spec.requests == REQUESTS
    other = reader().pod(changed(wrong, "spec/schedulerName", "default-scheduler"))
    assert other.spec.requests == REQUESTS
    if not path.startswith("spec"):
        assert other.spec.unsupported == "", "its owner would not see it"


def test_amounts_that_cannot_be_read() -> None:
    wrong = changed(POD, "spec/containers", container(resources={"requests": {"cpu": "x"}}))
    assert reader().pod(wrong).spec == PodSpec(
        (("pods", 1),),
        unsupported='spec.containers[0].resources.requests.cpu: "x" is not a quantity',
    )
    assert reader().pod(changed(POD, "spec/containers", [7])).spec.unsupported == (
        "spec.containers: its value has the wrong type"
    )


def test_an_annotation_goes_before_a_label() -> None:
    both = changed(POD, "metadata/labels", {names.PREEMPTABLE: "false", names.TASK: "b"})
    both["metadata"]["annotations"] = {names.PREEMPTABLE: "true", names.TASK: "a"}
    both["metadata"]["labels"][INDEX_KEYS[0].replace("~", "/")] = "5"
    assert reader().pod(both).order[0] == 5
    both["metadata"]["annotations"][INDEX_KEYS[0].replace("~", "/")] = "6"
    seen = reader().pod(both)
    assert (seen.preemptable, seen.task, seen.order[0]) == (True, "a", 6)


def test_the_first_error_is_kept() -> None:
    wrong = changed(POD, "metadata/labels", {"a": 7})
    wrong["metadata"]["annotations"] = {names.QUEUE_NAME: 7, names.MOVABLE: "x"}
    wrong["spec"]["volumes"] = 7
    assert (
        reader().pod(wrong).spec.unsupported == "metadata.labels.a: 7 is not the value of a label"
    )


def test_labels_up_to_the_limit() -> None:
    labels = {str(each): "" for each in range(limits.LABELS)}
    assert len(reader().pod(changed(POD, "metadata/labels", labels)).labels) == limits.LABELS


def test_texts_up_to_their_limits() -> None:
    labels = {"key": "x" * (limits.LABELS_TEXT - 3)}
    waits = changed(changed(POD, "metadata/labels", labels), "spec/nodeName", "")
    found = reader().pod(changed(waits, "spec/nodeSelector", selector(61)))
    assert (dict(found.labels), found.spec.unsupported) == (labels, "")
    more = selector(62)
    assert reader().pod(changed(waits, "spec/nodeSelector", more)).spec.unsupported == (
        f"spec: the parts that scheduling reads have {limits.POD_TEXT + 1} characters; at most {limits.POD_TEXT} are accepted"
    )
    runs = changed(changed(POD, "spec/nodeSelector", more), "spec/nodeName", "n1")
    assert not reader().pod(runs).spec.unsupported, "it runs, and is counted"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("spec/containers", lambda text: [{"name": "m", "image": "i", "args": [text]}]),
        (
            "spec/containers",
            lambda text: [{"name": "m", "image": "i", "env": [{"name": "E", "value": text}]}],
        ),
        (
            "spec/containers",
            lambda text: [{"name": "m", "ports": [{"containerPort": 1, "name": text}]}],
        ),
        ("metadata/annotations", lambda text: {"kubectl.kubernetes.io/last": text}),
        ("metadata/labels", lambda text: {"a": text}),
        ("metadata/managedFields", lambda text: [{"manager": text}]),
        ("spec/tolerations", lambda text: [{"key": text, "operator": "Exists"}]),
        ("status", lambda text: {"phase": "Pending", "message": text}),
    ],
)
def test_a_pod_of_any_size_takes_few_bytes(path: str, field: Callable[[str], Any]) -> None:
    kept, read = [], reader()
    tracemalloc.start()
    try:
        read.pod(changed(POD, path, field("y" * 100_000)))
        before, _ = tracemalloc.get_traced_memory()
        for number in range(10):
            pod = changed(POD, path, field(str(number) + "x" * 100_000))
            pod["metadata"] |= {"name": f"p{number}", "uid": f"u{number}"}
            kept.append(read.pod(pod))
            del pod
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(kept) < 4096


# --- the table is complete ---------------------------------------------------


class _Noting(dict[str, Any]):
    """A part of a pod that notes which of its fields are asked for."""

    def __init__(self, raw: Json, path: str, asked: set[str]) -> None:
        super().__init__(
            {key: _noting(value, f"{path}/{key}", asked) for key, value in raw.items()}
        )
        self.path, self.asked = path, asked

    def __getitem__(self, key: str) -> Any:
        self.asked.add(f"{self.path}/{key}")
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(f"{self.path}/{key}")
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.asked.add(f"{self.path}/{key}")
        return super().__contains__(key)


def _noting(value: Any, path: str, asked: set[str]) -> Any:
    if isinstance(value, dict):
        return _Noting(value, path, asked)
    return [_noting(each, path, asked) for each in value] if isinstance(value, list) else value


def _parts(path: str, value: Any) -> Iterator[str]:
    """The paths of all fields in the value, without the numbers of lists."""
    yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _parts(f"{path}/{key}", each)
    elif isinstance(value, list):
        for each in value:
            yield from _parts(path, each)


def test_the_table_has_every_field_that_is_read() -> None:
    asked: set[str] = set()
    shown: set[str] = set()
    for path, value, _ in [*CALLED, *TERMS]:
        raw = changed(POD, path, value)
        try:
            reader().pod(_Noting(raw, "", asked))
        except DECODE_ERRORS:
            continue
        shown.update(_parts("", raw))
    by_any_key = ("/metadata/labels/", "/metadata/annotations/", "/spec/nodeSelector/")
    missing = {each for each in asked - shown if not each.startswith(by_any_key)}
    # Asked of all parts that rules are made from; no fields of these.
    missing -= {"/status/initContainerStatuses"}  # it has a test of its own
    missing -= {
        f"/spec/{part}/{field}"
        for part in ("containers", "initContainers", f"affinity/nodeAffinity/{PREFERRED}")
        for field in ("matchLabelKeys", "mismatchLabelKeys")
    }
    assert sorted(missing) == []

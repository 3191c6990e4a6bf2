import pytest

from central.model.json_types import json_merge
from central.standalone import patches
from central.standalone.api_errors import ApiError


def test_merge_takes_away_with_null_and_replaces_lists() -> None:
    target = {"a": {"x": 1, "y": 2}, "list": [1, 2]}
    assert json_merge(target, {"a": {"x": None, "z": 3}, "list": [3]}) == {
        "a": {"y": 2, "z": 3},
        "list": [3],
    }
    assert target == {"a": {"x": 1, "y": 2}, "list": [1, 2]}


def test_strategic_merges_conditions_by_type() -> None:
    target = {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Old", "status": "x"}]}
    patch = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "New", "status": "y"}]}
    assert patches.strategic(target, patch)["conditions"] == [
        {"type": "Ready", "status": "True"},
        {"type": "Old", "status": "x"},
        {"type": "New", "status": "y"},
    ]


def test_strategic_directives() -> None:
    target = {
        "containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}],
        "metadata": {"finalizers": ["x"], "labels": {"k": "v"}},
        "args": ["one", "two"],
    }
    patch = {
        "containers": [{"name": "a", "$patch": "delete"}, {"name": "c", "image": "2"}],
        "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}],
        "metadata": {
            "finalizers": ["y"],
            "$deleteFromPrimitiveList/finalizers": ["x"],
            "labels": {"$patch": "replace", "n": "w"},
        },
        "args": ["three"],
    }
    assert patches.strategic(target, patch) == {
        "containers": [{"name": "c", "image": "2"}, {"name": "b", "image": "1"}],
        "metadata": {"finalizers": ["y"], "labels": {"n": "w"}},
        "args": ["three"],
    }


def test_json_patch_operations() -> None:
    target = {"a": [1, 2, 3], "b": {"c/d": 1}}
    operations = [
        {"op": "test", "path": "/a/0", "value": 1},
        {"op": "add", "path": "/a/1", "value": 9},
        {"op": "add", "path": "/a/-", "value": 4},
        {"op": "remove", "path": "/a/0"},
        {"op": "replace", "path": "/b/c~1d", "value": 2},
        {"op": "copy", "from": "/b", "path": "/e"},
        {"op": "move", "from": "/b", "path": "/f"},
    ]
    assert patches.json_patch(target, operations) == {
        "a": [9, 2, 3, 4],
        "e": {"c/d": 2},
        "f": {"c/d": 2},
    }


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "remove", "path": "/missing"},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "dance", "path": "/a"},
        {"path": "/a"},
    ],
)
def test_json_patch_that_does_not_apply_is_refused(operation: dict[str, object]) -> None:
    with pytest.raises(ApiError) as refused:
        patches.json_patch({"a": 1, "list": []}, [operation])
    assert refused.value.code == 422

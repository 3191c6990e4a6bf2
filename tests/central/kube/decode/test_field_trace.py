"""A value of an unexpected shape is named by its path, also where other fields are looked up before it is used."""

from typing import Any

import pytest

from central.kube.decode.field_trace import last_field

RAW = {"spec": {"tasks": [{"name": "a"}, None], "labels": "x", "more": {"y": 5}}, "status": {}}


def labels_after_status(raw: Any) -> None:
    labels = raw["spec"]["labels"]
    raw["status"].get("phase")
    labels.get("a")


def entries(raw: Any) -> None:
    tasks = raw["spec"]["tasks"]
    raw["status"].get("phase")
    for task in tasks:
        task.get("name")


def wrong_operand(raw: Any) -> None:
    number = raw["spec"]["more"]["y"]
    raw["status"].get("phase")
    list(number)


def missing(raw: Any) -> None:
    raw["spec"]["tasks"][0]["replicas"]


def one_of_a_list(raw: Any) -> None:
    int(raw["spec"]["tasks"][0]["name"])


@pytest.mark.parametrize(
    ("read", "field"),
    [
        (labels_after_status, "spec.labels"),
        (entries, "spec.tasks"),
        (wrong_operand, "spec.more.y"),
        (missing, "spec.tasks[0].replicas"),
        (one_of_a_list, "spec.tasks[0].name"),
        (len, ""),
    ],
)
def test_the_field_is_named(read: Any, field: str) -> None:
    errors = (AttributeError, TypeError, KeyError, ValueError)
    assert last_field(errors, read, RAW) == field

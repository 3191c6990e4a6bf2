from collections.abc import Iterator
from itertools import count

import pytest

from central.model.json_types import Json
from central.standalone.api_errors import ApiError
from central.standalone.object_store import Store
from central.standalone.served_kinds import BUILT_IN, Resource

PODS = next(r for r in BUILT_IN if r.plural == "pods")
CONFIGMAPS = next(r for r in BUILT_IN if r.plural == "configmaps")


def uids() -> Iterator[str]:
    return (f"{number:05}-uid" for number in count(1))


@pytest.fixture
def store() -> Store:
    numbers = uids()
    return Store(lambda: "2026-01-01T00:00:00Z", lambda: next(numbers), history=10)


def make(store: Store, name: str, resource: Resource = CONFIGMAPS, **more: object) -> Json:
    metadata = {"namespace": "default", **({"name": name} if name else {})}
    obj = {"metadata": {**metadata, **more.pop("metadata", {})}, **more}  # type: ignore[dict-item]
    return store.create(resource, obj, lambda new: new).obj


def test_versions_only_grow_and_a_write_that_changes_nothing_is_none(store: Store) -> None:
    first = make(store, "a")
    second = make(store, "b")
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    same = store.update(CONFIGMAPS, "default", "a", dict)
    assert same.obj is store.get(CONFIGMAPS, "default", "a").obj
    assert same.obj["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_stale_write_is_refused(store: Store) -> None:
    old = make(store, "a")
    store.update(CONFIGMAPS, "default", "a", lambda obj: {**obj, "data": {"x": "1"}})
    with pytest.raises(ApiError) as refused:
        store.update(CONFIGMAPS, "default", "a", lambda _: {**old, "data": {"x": "2"}})
    assert refused.value.code == 409


def test_the_server_keeps_its_own_metadata(store: Store) -> None:
    made = make(store, "a")
    bad = {"metadata": {"name": "a", "creationTimestamp": "never", "labels": {"x": "y"}}}
    after = store.update(CONFIGMAPS, "default", "a", lambda _: bad).obj
    assert after["metadata"]["uid"] == made["metadata"]["uid"]
    assert after["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert after["metadata"]["labels"] == {"x": "y"}


def test_status_and_the_rest_are_written_apart(store: Store) -> None:
    make(store, "p", PODS, spec={"a": 1}, status={"phase": "Pending"})
    ran = {"metadata": {}, "spec": {"a": 2}, "status": {"phase": "Running"}}
    by_status = store.update(PODS, "default", "p", lambda _: ran, "status").obj
    assert (by_status["spec"], by_status["status"]) == ({"a": 1}, {"phase": "Running"})
    rest = store.update(PODS, "default", "p", lambda _: {**ran, "status": {}}).obj
    assert (rest["spec"], rest["status"]) == ({"a": 2}, {"phase": "Running"})


def test_names_are_made_up_where_asked(store: Store) -> None:
    names = {
        make(store, "", metadata={"generateName": "web-"})["metadata"]["name"] for _ in range(3)
    }
    assert len(names) == 3
    assert all(name.startswith("web-") for name in names)


def test_history_forgets_the_oldest_and_says_so(store: Store) -> None:
    first = int(make(store, "a")["metadata"]["resourceVersion"])
    collection = store.collection(CONFIGMAPS)
    numbers = iter(map(str, range(30)))

    def next_number(obj: Json) -> Json:
        return {**obj, "data": {"n": next(numbers)}}

    for _ in range(30):
        store.update(CONFIGMAPS, "default", "a", next_number)
    assert collection.position(first) is None
    assert collection.after(0) is None
    position = collection.position(store.version - 3)
    assert position is not None
    events = collection.after(position)
    assert events is not None
    assert [event.item.obj["data"]["n"] for event in events] == ["27", "28", "29"]


def test_finalizers_hold_an_object_until_they_are_gone(store: Store) -> None:
    make(store, "a", metadata={"finalizers": ["hold"]})
    item, gone = store.delete(CONFIGMAPS, "default", "a")
    assert not gone
    assert "deletionTimestamp" in item.obj["metadata"]

    def released(obj: Json) -> Json:
        return {**obj, "metadata": {**obj["metadata"], "finalizers": []}}

    store.update(CONFIGMAPS, "default", "a", released)
    assert store.find(CONFIGMAPS, "default", "a") is None
    assert store.collection(CONFIGMAPS).events[-1].type == "DELETED"


def test_a_second_delete_may_only_shorten_the_grace(store: Store) -> None:
    make(store, "p", PODS, spec={})
    first, _ = store.delete(PODS, "default", "p", grace_s=30, ends_at="soon")
    again, gone = store.delete(PODS, "default", "p", grace_s=60, ends_at="later")
    assert (again.obj, gone) == (first.obj, False)
    _, gone = store.delete(PODS, "default", "p", grace_s=0)
    assert gone

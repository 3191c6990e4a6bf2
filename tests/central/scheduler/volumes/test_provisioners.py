"""Where volumes can be provisioned, as classes, drivers and capacities come, change and go."""

from central.model.pod_rules import NodeTerms, Requirement
from central.model.volumes import (
    CapacityGone,
    CapacitySeen,
    DriverGone,
    DriverSeen,
    StorageClassGone,
    StorageClassSeen,
)
from central.scheduler.volumes.provisioners import Provisioners

FAST = StorageClassSeen("fast", "csi.example")
SLOW = StorageClassSeen("slow", "other.example")


def on(*nodes: str, key: str = "host") -> NodeTerms:
    return ((Requirement(key, "In", nodes),),)


def capacity(name: str, most: int, places: NodeTerms, storage_class: str = "fast") -> CapacitySeen:
    return CapacitySeen("ns", name, storage_class, places, most)


def known(*facts: object) -> Provisioners:
    found = Provisioners()
    for fact in facts:
        found.apply(fact)  # type: ignore[arg-type]  # facts of this module
    return found


def test_a_driver_that_publishes_no_capacity_provisions_anywhere() -> None:
    for driver in ((), (DriverSeen("csi.example", False),)):
        found = known(FAST, *driver)
        assert list(found.places(FAST, 10)) == []
        assert found.refusal(FAST, 10) == ""


def test_capacity_counts_to_the_last_byte_and_where_it_is() -> None:
    """Nodes with the same label are one term; other terms, and no term at all, stay apart."""
    odd = ((Requirement("host", "Exists", ()), Requirement("disk", "In", ("x",))),)
    found = known(
        FAST,
        DriverSeen("csi.example", True),
        capacity("b", 10, on("b")),
        capacity("a", 11, on("a")),
        capacity("small", 9, on("c")),
        capacity("zone", 10, on("z", key="zone")),
        capacity("odd", 10, odd),
        capacity("nowhere", 10, ()),
        capacity("other", 10, on("d"), storage_class="slow"),
    )
    assert list(found.places(FAST, 10)) == [(*on("a", "b"), *on("z", key="zone"), *odd)]
    assert list(found.places(FAST, 11)) == [on("a")]
    assert found.refusal(FAST, 11) == ""
    assert list(found.places(FAST, 12)) == [()]
    assert found.refusal(FAST, 12 << 30) == (
        "asks for 12Gi, and driver csi.example has no node with that capacity"
    )


def test_allowed_topologies_and_capacity_both_hold() -> None:
    zoned = StorageClassSeen("fast", "csi.example", places=on("z", key="zone"))
    found = known(zoned, DriverSeen("csi.example", True), capacity("a", 10, on("a")))
    assert list(found.places(zoned, 10)) == [on("z", key="zone"), on("a")]


def test_a_fact_names_the_classes_that_it_affects() -> None:
    found = Provisioners()
    assert found.apply(FAST) == {"fast"}
    assert found.apply(SLOW) == {"slow"}
    assert found.apply(DriverSeen("csi.example", True)) == {"fast"}
    assert found.apply(capacity("a", 10, on("a"))) == {"fast"}
    assert found.apply(capacity("a", 10, on("a"), storage_class="slow")) == {"fast", "slow"}
    assert found.refusal(FAST, 1) != "", "the capacity is another class's now"
    assert found.apply(capacity("a", 10, on("a"))) == {"fast", "slow"}
    assert list(found.recorded()) == [
        FAST,
        SLOW,
        DriverSeen("csi.example", True),
        capacity("a", 10, on("a")),
    ]
    assert found.apply(CapacityGone("ns", "a")) == {"fast"}
    assert found.apply(CapacityGone("ns", "a")) == set()
    assert found.apply(DriverGone("csi.example")) == {"fast"}
    assert found.refusal(FAST, 1) == ""
    assert found.apply(StorageClassGone("slow")) == {"slow"}
    assert list(found.recorded()) == [FAST]

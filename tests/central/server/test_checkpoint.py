"""A checkpoint is text from which a scheduler goes on exactly as the one that wrote it."""

import dataclasses
import json
import lzma
import math
import random
import typing
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from central.controllers.composite import ControllersMemory, jobs_of, new_scheduler
from central.model.stored_fields import NOT_STORED
from central.scheduler import cycle
from central.scheduler.memory import SchedulerMemory
from central.scheduler.scheduler import Scheduler
from central.server import checkpoint, codec
from tests.central.scheduler.invariants import check_invariants
from tests.central.server.any_values import JSON, any_of
from tests.effort import examples
from tests.golden import play

STORED = Path(__file__).parent / "stored_checkpoint.json"
GONE = {"stays"}  # fields of that text without a successor
GROUPS = sorted({file.name.partition("-")[0] for file in play.FILES} - {"benchmarks"})
CYCLES = 50  # of each journal
COUNTED = ("pending", "queues", "stays", "queue_statuses")  # they go on counting
NOT_STORED_FIELDS = {
    "ElasticObject": {"view"},
    "ElasticObjects": {"by_gang"},
    "Job": {
        *("seen", "pods", "reported", "elastic_view"),
        *("_desired_by", "_desired_pods", "_sized", "_sized_by"),
    },
    "JobStore": {"by_name", "by_group", "elastic", "_owned", "_pods"},
    "Pod": {"seen", "spec", "charged_spec"},
    "QueueStatuses": {"_root"},
    "SetAside": {"content"},
}


def memory_classes(kind: Any) -> Iterator[type]:
    """Those that a checkpoint contains besides facts."""
    if dataclasses.is_dataclass(kind):
        if not kind.__module__.startswith(("central.model", "protos")):
            yield typing.cast("type", kind)
            hints = typing.get_type_hints(kind)
            for each in dataclasses.fields(kind):
                if each.metadata != NOT_STORED:
                    yield from memory_classes(hints[each.name])
        return
    for inner in typing.get_args(kind):
        yield from memory_classes(inner)


# The last one has nothing but others.
CLASSES = dict.fromkeys(
    (*memory_classes(SchedulerMemory), *[*memory_classes(ControllersMemory)][1:], ControllersMemory)
)


def assert_same(found: Any, value: Any) -> None:
    """Also of classes that are compared by identity."""
    assert type(found) is type(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in dataclasses.fields(value):
            if each.metadata != NOT_STORED:
                assert_same(getattr(found, each.name), getattr(value, each.name))
    elif isinstance(value, dict):
        assert [*found] == [*value]
        for key in value:
            assert_same(found[key], value[key])
    elif isinstance(value, list | tuple):
        assert len(found) == len(value)
        for one, other in zip(found, value, strict=True):
            assert_same(one, other)
    else:
        assert found == value


@pytest.mark.parametrize("kind", [*CLASSES][:-1], ids=lambda kind: kind.__name__)
def test_every_field_of_what_is_remembered_comes_back_equal(kind: type) -> None:
    @settings(max_examples=examples(20), deadline=None)
    @given(any_of(kind))
    def comes_back(value: Any) -> None:
        assert_same(
            codec.restored(kind, orjson.loads(codec.dumps(codec.plain(kind, value)))), value
        )

    comes_back()


def test_fields_that_are_not_stored_are_few() -> None:
    """Each of them must follow from facts, or be computed again."""
    found: dict[str, set[str]] = {}
    for kind in CLASSES:
        for each in dataclasses.fields(kind):
            if each.metadata == NOT_STORED:
                found.setdefault(kind.__name__, set()).add(each.name)
    assert found == NOT_STORED_FIELDS


def test_infinite_times_come_back() -> None:
    [kind] = (each for each in CLASSES if each.__name__ == "PreemptionStanding")
    standing = kind(overrun=math.inf)
    written = orjson.loads(codec.dumps(codec.plain(kind, standing)))
    assert written == {"overrun": "inf"}, "a field with its default is left out"
    assert codec.restored(kind, written) == standing
    assert_same(
        codec.restored(SchedulerMemory, {}), SchedulerMemory()
    )  # as of fields that are newer


def journal_of(group: str, dice: random.Random) -> Iterator[tuple[str, Any]]:
    """A journal of the golden ones."""
    file = dice.choice([each for each in play.FILES if each.name.startswith(f"{group}-")])
    lines = lzma.decompress(file.read_bytes()).splitlines()
    heads = [at for at, line in enumerate(lines) if line.startswith(b'{"journal"')]
    begin = dice.choice(heads)
    yield "settings", orjson.loads(lines[begin])["settings"]
    for line in lines[begin + 1 : min((at for at in heads if at > begin), default=len(lines))]:
        yield next(iter(orjson.loads(line).items()))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("group", GROUPS)
def test_a_scheduler_that_is_read_goes_on_as_the_one_that_wrote(group: str, seed: int) -> None:
    """It decides the same, and remembers the same."""
    dice, cycles = random.Random(f"{group} {seed}"), 0
    kept = read = new_scheduler()
    for kind, content in journal_of(group, dice):
        if kind == "settings":
            given_ = {**content, "levels": tuple(content["levels"])}
            kept, read = new_scheduler(**given_), new_scheduler(**given_)
        elif kind == "learn":
            for each in (kept, read):
                cycle.apply_facts(each, codec.untagged(content[1]), content[0])
        elif kind == "turn" and cycles < CYCLES:
            cycles += 1
            if not dice.randrange(5):
                taken = checkpoint.take(kept)
                kept.adopt(taken.folded)
                written = orjson.loads(taken.text)
                assert known(remembered(kept)) == known(written), f"cycle {cycles}"
                read = checkpoint.load(read, orjson.loads(taken.text))
                assert remembered(read) == remembered(kept), f"cycle {cycles}"
                check_invariants(read)
            now, facts = content[0], codec.untagged(content[1])
            decided = [cycle.schedule_once(each, facts, now) for each in (kept, read)]
            assert decided[0] == decided[1], f"cycle {cycles}"
            check_invariants(kept)


def known(found: Any) -> Any:
    """What the scheduler knows of each object, in any order. Evictions of a reservation that were not asked for end,
    and devices are planned for pods that had none."""
    memory = {key: each for key, each in found["memory"].items() if key not in COUNTED}
    names = {fact.get("name") for kind, fact in found["facts"] if kind == "NodeSeen"}
    memory["nodes"] = {name: each for name, each in memory["nodes"].items() if name in names}
    memory["gangs"] = sorted(memory["gangs"], key=str)
    for _, gang in memory["gangs"]:
        gang["preemption"].pop("preempted_for", None)
    for each in memory["nodes"].values():
        each.pop("planned_nics", None)
    for each in memory["pods"].values():
        each.pop("gpus", None)
    return memory, found["controllers"]


def remembered(scheduler: Scheduler) -> Any:
    return orjson.loads(checkpoint.take(scheduler).text)


# --- text in the repository ----------------------------------------------------------------


def test_a_stored_checkpoint_is_read() -> None:
    """Whatever its classes are called now. Where the meaning of a field changes, add a file and keep this one."""
    found = orjson.loads(STORED.read_bytes())
    made = checkpoint.load(new_scheduler(("rack",)), found)
    check_invariants(made)
    state = made.state
    assert len(state.nodes) == 4
    bound = {pod.seen.name: pod.node for pod in state.pods.values() if pod.node}
    assert bound == {
        name: memory["node"]
        for uid, memory in found["memory"]["pods"].items()
        if (name := state.pods[uid].seen.name) and memory["node"]
    }
    assert len(bound) > 4
    reasons = {gang.name: gang.attempt.reason for gang in state.gangs.values()}
    assert "GPU" in reasons["big"]
    assert {*jobs_of(made).by_name} == {("ns", "j")}
    assert {*made.queues.by_name} >= {"research"}
    again = orjson.loads(checkpoint.take(made).text)
    for part in ("memory", "controllers"):
        assert set(found[part]) - GONE <= set(again[part]), "a field that is no longer read"


# --- files from elsewhere ----------------------------------------------------------------------


def places(found: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inside = found.items() if isinstance(found, dict) else ()
    for key, value in enumerate(found) if isinstance(found, list) else inside:
        yield from places(value, (*path, key))


PLACES = [*places(json.loads(STORED.read_bytes()))]


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(PLACES[1:]), JSON)
def test_a_changed_checkpoint_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    changed = orjson.loads(STORED.read_bytes())
    inside = changed
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    with suppress(codec.UnreadableRecord):
        checkpoint.load(new_scheduler(("rack",)), changed)

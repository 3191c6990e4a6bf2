"""No tenant reads a text of another one: whatever field of whatever object it is in, in whatever Event, status or
answer."""

import random
from typing import Any

import pytest

from central.model.facts import Fact, QueueSeen
from protos import names
from protos.names import GPU
from tests.central.poison.by_field.field_walk import Path, paths, shown
from tests.central.poison.tenants import bundles
from tests.central.poison.tenants.bundles import BUNDLES, RICH, owned
from tests.central.poison.tenants.two_tenants import (
    BLUE,
    RED,
    Tenant,
    TwoTenants,
    Written,
    facts_of,
    leaks,
    nodes,
)

TOGETHER = 12  # changed objects in one cluster, each with its twin
IDENTITY = {"name", "namespace", "uid", "phase", "nodeName", "schedulerName"}
NOTES = sorted(
    {value for value in vars(names).values() if isinstance(value, str) and "/" in value[:-1]}
    | set(names.GROUP_NAMES)
)


def texts(tenant: Tenant, number: int) -> tuple[str, ...]:
    mark = tenant.mark
    return (
        f"Log in at {mark}.example, {number}",
        f"{mark}-{number}",
        f"{mark.upper()}_{number}.X",
        f"{mark}/{mark}-{number}",
        f"{mark}.example/{number}",
    )


def places(raw: Any) -> list[Path]:
    """Of every text in the object, and of each annotation and label that the scheduler may read."""
    found = [path for path in paths(raw) if isinstance(_at(raw, path), str)]
    found = [path for path in found if not (path[0] == "metadata" and len(path) == 2)]
    return found + [
        ("metadata", part, note) for part in ("annotations", "labels") for note in NOTES
    ]


def _at(raw: Any, path: Path) -> Any:
    for key in path:
        raw = raw[key]
    return raw


def put(raw: Any, path: Path, text: str) -> None:
    for key in path[:-1]:
        raw = raw.setdefault(key, {}) if isinstance(raw, dict) else raw[key]
    raw[path[-1]] = text


class Case:
    """An object of RED with a text in one field, beside the same objects of BLUE without."""

    def __init__(self, what: str, bundle: list[Written], number: int, dice: random.Random) -> None:
        self.red = owned(bundle, RED, f"{RED.mark}-{number}")
        self.blue = owned(bundle, BLUE, f"{BLUE.mark}-{number}")
        kind, raw = dice.choice(self.red)
        path = dice.choice(places(raw))
        text = dice.choice(texts(RED, number))
        put(raw, path, text)
        self.where = f"{what}: {kind} {shown(path)}: {text}"


def cluster_facts(dice: random.Random) -> list[Fact]:
    """Nodes, and queues with some rules or none."""
    facts = nodes(dice.choice((2, 4)))
    if dice.random() < 0.7:
        facts.append(QueueSeen("default", **dice.choice(QUEUES)))
        facts.append(QueueSeen("q", uid="u-q", deserved=((GPU, 8),)))
    facts += facts_of(
        ("priorityclasses.scheduling.k8s.io", {"metadata": {"name": name}, "value": value})
        for name, value in bundles.PRIORITIES.items()
    )
    storage = {"metadata": {"name": "waits"}, "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
    return [*facts, *facts_of([("storageclasses.storage.k8s.io", storage)])]


QUEUES: list[dict[str, Any]] = [
    {"uid": "u-default"},
    {"uid": "u-default", "capability": ((GPU, 4),)},
    {"uid": "u-default", "capability": ((GPU, 16),)},
    {"uid": "u-default", "fifo": True},
    {"uid": "u-default", "namespace_gangs": 1},
    {"uid": "u-default", "user_gangs": 1},
    {"uid": "u-default", "quantum_s": 60.0},
    {"uid": "u-default", "closed": True},
]


def check(cases: list[Case], dice: random.Random) -> None:
    world = TwoTenants(cluster_facts(dice), preempt_across=dice.choice(["none", "namespaces"]))
    written = [facts_of(owners) for case in cases for owners in (case.red, case.blue)]
    said = []
    if dice.random() < 0.5:
        dice.shuffle(written)
    for part in (written[: len(written) // 2], written[len(written) // 2 :]):
        said += world.cycle([fact for facts in part for fact in facts])
    for after_s in (1.0, 5.0, 70.0):
        said += world.cycle(after_s=after_s)
        said += world.answers()
    found = [*leaks(said)]
    assert not found, f"{len(found)} leaks, as {found[0]}\n" + "\n".join(c.where for c in cases)


MORE = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 150)]


@pytest.mark.parametrize("seed", [*range(12), *MORE])
def test_random_texts(seed: int) -> None:
    dice = random.Random(seed)
    cases = []
    for number in range(TOGETHER):
        what = dice.choice(sorted(BUNDLES))
        cases.append(Case(what, BUNDLES[what](), number, dice))
    check(cases, dice)


@pytest.mark.parametrize("seed", [*range(6), *MORE])
def test_random_texts_in_rich_objects(seed: int) -> None:
    dice = random.Random(seed)
    cases = []
    for number in range(TOGETHER):
        what = dice.choice(RICH)
        cases.append(Case(str(what), bundles.rich(*what)(), number, dice))
    check(cases, dice)

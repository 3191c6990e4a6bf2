"""One changed object against the edge and the core, as the watch and the cycle treat it."""

import json
import random
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from central.kube.decode.fields import MalformedObject
from central.kube.transport import deep_json
from central.model.decisions import (
    Bind,
    Create,
    Decision,
    Delete,
    EmitWarning,
    Evict,
    Patch,
    SetSize,
    SetStatus,
    UpdateGangStatus,
)
from central.model.facts import Answered, BindDone, EvictDone, Fact, PodGone, QueueSeen
from central.model.json_types import Json
from central.model.resources import ROOT
from central.scheduler.cycle import due
from tests.central.poison.by_field.examples import Watched
from tests.central.poison.by_field.field_walk import apply, sampled
from tests.central.poison.by_field.leftovers import grown, sizes
from tests.central.poison.world import CYCLE_S, READ_S, World
from tests.central.scheduler.invariants import check_invariants
from tests.own_memory import own_bytes
from tests.own_time import own_time

BACKOFF_S = 4000.0  # the longest that something is left alone after a failure
TOGETHER = 40  # objects in one cycle
_GIVEN = ("bad-0", "u-bad", "train", "uid-train", "serve", "uid-serve")  # of the examples
MEMORY_MOST = 500 << 20  # bytes that a walk leaves, with what the tests and the allocator keep
SENTENCE_MOST = 1000  # characters: what is wrong with a field, and why its gang waits


class Seen(NamedTuple):
    """What became of one changed object."""

    where: str
    gone: Fact | None
    fact: Fact | None
    sentence: str


def as_sent(raw: Any) -> bytes:
    """As the API server, or what stands before it, would send it."""
    try:
        return orjson.dumps(raw)
    except TypeError:  # a lone surrogate, or a number of more than 64 bits
        return json.dumps(raw).encode()


def read(one: Watched, raw: Json, where: str) -> Seen:
    """As the watch does. Raises AssertionError where the edge does anything but read or refuse the object."""
    _identify(raw, where)
    body, gone, fact, sentence = as_sent(raw), None, None, ""
    with own_time() as spent:
        try:
            received = deep_json.loads(body)
        except ValueError as error:
            raise AssertionError(f"{where}: {error}") from error
        try:
            gone = one.kind.gone(received)
            hash(gone)
        except (ValueError, KeyError, TypeError, AttributeError):  # nothing refers to it: skipped
            gone = None
        try:
            fact = one.kind.seen(received)
            unsupported = getattr(getattr(fact, "spec", None), "unsupported", "")
            sentence = getattr(fact, "error", "") or unsupported
        except MalformedObject as error:
            sentence = str(error)
        except Exception as error:
            raise AssertionError(f"{where}: {error!r}") from error
    assert spent.seconds < READ_S * 8, f"{where}: {spent.seconds:.2f} s to read it"
    _check_sentence(sentence, where)
    return Seen(where, gone, fact, sentence)


def _identify(raw: Json, where: str) -> None:
    """No two objects of an API server have the same name, or the same uid."""
    meta, number = raw.get("metadata"), zlib.crc32(where.encode())
    for key in ("name", "uid"):
        if isinstance(meta, dict) and meta.get(key) in _GIVEN:
            meta[key] = f"{meta[key]}-{number}"


def _check_sentence(sentence: str, where: str) -> None:
    assert sentence.isprintable(), f"{where}: {sentence!r}"
    assert len(sentence) <= SENTENCE_MOST, f"{where}: {len(sentence)} characters: {sentence}"


class FieldWorld:
    """A scheduler that sees the changed objects of one kind, and what it was like before."""

    def __init__(self) -> None:
        self.world = World()
        for _ in range(2):  # what any cycle leaves
            self.world.cycle()
        self.before = sizes(self.world.scheduler)
        self.answers: list[Fact] = []

    def run(self, seen: list[Seen]) -> None:
        """Cycles with the objects, then without them. Raises AssertionError."""
        facts = [each for each in seen if each.fact is not None and each.gone is not None]
        where = f"{facts[0].where} to {facts[-1].where}" if facts else ""
        self._cycle([_of_administrator(each.fact) for each in facts if each.fact], where)
        self._cycle([], where)
        self._cycle([each.gone for each in facts if each.gone], where)
        for _ in range(2):
            self._cycle([], where)
            self.world.now += BACKOFF_S
        check_invariants(self.world.scheduler)
        left = grown(self.before, sizes(self.world.scheduler))
        assert not left, f"{where}: left behind: {left}"

    def _cycle(self, facts: list[Fact], where: str) -> None:
        try:
            decisions, spent_s = self.world.cycle(*self.answers, *facts)
            due(self.world.scheduler, self.world.now)
        except Exception as error:
            raise AssertionError(f"{where}: {error!r}") from error
        assert spent_s < CYCLE_S * 2, f"{where}: a cycle of {spent_s:.2f} s"
        self.answers = [*map(answer, decisions)]
        failed = list(self.world.scheduler.quarantine.set_asides.values())
        assert not failed, f"{where}: set aside: {failed[0].name}: {failed[0].why}"
        for sentence in sentences(decisions):
            _check_sentence(sentence, where)


def answer(decision: Decision) -> Fact:
    """What the API server says where nothing is wrong."""
    match decision:
        case Bind():
            return BindDone(decision.pod, decision.node)
        case Evict():
            return EvictDone(decision.pod, trial=decision.trial)
        case UpdateGangStatus() | EmitWarning():
            return PodGone("none")  # these have no answer
        case Create() | Delete() | SetStatus() | Patch() | SetSize():
            verb = type(decision).__name__
            return Answered(verb, decision.kind, decision.namespace, decision.name, "u-answered")


def sentences(decisions: Iterable[Decision]) -> Iterator[str]:
    """What decisions tell people."""
    for each in decisions:
        for field in ("why", "reason", "public"):
            if isinstance(text := getattr(each, field, ""), str):
                yield text


def _of_administrator(fact: Fact) -> Fact:
    """A capability of the root queue holds for everybody: the administrator's word."""
    if isinstance(fact, QueueSeen) and fact.name == ROOT:
        return fact.__class__(ROOT)
    return fact


def walk(one: Watched, seed: int, each: int, pairs: int, most: int | None) -> None:
    """So many changes of each field of the kind's examples, and pairs of changes; at most `most` in all. Raises
    AssertionError with the object and the change."""
    dice = random.Random(f"{seed} {one.name}")
    made = [
        (number, change)
        for number, example in enumerate(one.examples)
        for change in sampled(example(), dice, each, pairs)
    ]
    if most is not None:
        made = dice.sample(made, min(most, len(made)))
    before = own_bytes()
    world, together = FieldWorld(), list[Seen]()
    for number, change in made:
        where = f"{one.name} {number}: {' and '.join(map(str, change))}"
        together.append(read(one, apply(one.examples[number](), *change), where))
        if len(together) == TOGETHER:
            world.run(together)
            together.clear()
    world.run(together)
    more = own_bytes() - before
    assert more < MEMORY_MOST, f"{one.name}: {more >> 20} MiB more after {len(made)} objects"

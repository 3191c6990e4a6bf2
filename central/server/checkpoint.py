"""The beginning of a journal when it goes on in a new file: the facts that hold now, and what the scheduler knows
besides them, as plain data.

    {"checkpoint": {"facts": [fact, ...], "memory": {...}, "controllers": {...}}}

Text is read by the names and types of fields, so that classes may be renamed and fields added. Folding it is not exact:
it plans reservations and starts rounds again. So the scheduler itself goes on with the state that it folds from what
was written, and a replay decides as it did.

Design: docs/design/containment.md
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from central.controllers.composite import BatchControllers, ControllersMemory
from central.model.facts import Fact
from central.scheduler.memory import SchedulerMemory, remember
from central.scheduler.quarantine import Quarantine
from central.scheduler.rebuild import fold, recorded, recorded_pods
from central.scheduler.scheduler import Scheduler
from central.server import codec


class Taken(NamedTuple):
    text: bytes  # JSON
    folded: Scheduler  # which the scheduler is to adopt; it has the same quarantine


def take(scheduler: Scheduler) -> Taken:
    controllers = scheduler.controllers
    assert isinstance(controllers, BatchControllers)
    facts = [*controllers.recorded(), *recorded(scheduler), *recorded_pods(scheduler)]
    memory = remember(scheduler)
    parts = {
        "facts": codec.dumps(codec.tagged(facts)),
        "memory": codec.dumps(codec.plain(SchedulerMemory, memory)),
        "controllers": codec.dumps(codec.plain(ControllersMemory, controllers.remember())),
    }
    folded = scheduler.emptied(controllers=BatchControllers())
    # They keep bodies of objects, which JSON may change: tuples become lists.
    _fold(folded, facts, memory, orjson.loads(parts["controllers"]))
    text = b",".join(b'"%b":%b' % (name.encode(), part) for name, part in parts.items())
    return Taken(b"{" + text + b"}", folded)


def load(settings: Scheduler, found: Any) -> Scheduler:
    """The scheduler that the checkpoint describes, with the settings of this one. Raises codec.UnreadableRecord."""
    made = settings.emptied(Quarantine(), BatchControllers())
    try:
        memory = codec.restored(SchedulerMemory, found["memory"])
        _fold(made, codec.untagged(found["facts"]), memory, found["controllers"])
    except (
        Exception
    ) as error:  # it may name objects that do not fit together, so anything may be raised
        why = f"{type(error).__name__}: {error}"
        raise codec.UnreadableRecord(f"checkpoint: {why[:200]}") from error
    return made


def _fold(
    fresh: Scheduler, facts: Sequence[Fact], memory: SchedulerMemory, controllers: Any
) -> None:
    fresh.quarantine.restore(memory.quarantine)
    fold(fresh, facts, memory)
    fresh.controllers.restore(codec.restored(ControllersMemory, controllers))

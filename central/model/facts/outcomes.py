"""What became of what was asked."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BindDone:
    pod: str  # uid
    node: str


@dataclass(frozen=True, slots=True)
class BindFailed:
    pod: str
    node: str
    why: str
    final: bool = False  # asking again can't help: the pod is gone or bound elsewhere


@dataclass(frozen=True, slots=True)
class EvictDone:
    pod: str
    why: str = field(default="")  # empty: accepted; else why it was refused (a disruption budget)
    trial: bool = False  # it was only asked whether it would be accepted


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a Create, Delete, SetStatus or Patch."""

    verb: str  # the decision's name
    kind: str
    namespace: str
    name: str
    uid: str = ""  # of the object that was created, or was there already
    why: str = ""  # empty: it is done; a Delete of what is gone already is done as well
    code: int = 0  # of the API server's answer, where it refused

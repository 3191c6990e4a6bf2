"""Facts about the outcomes of decisions."""

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
    final: bool = False  # the API server has shown that the pod is deleted or bound elsewhere


@dataclass(frozen=True, slots=True)
class EvictDone:
    pod: str
    why: str = field(default="")  # empty: accepted; else why not, such as a disruption budget
    trial: bool = False  # a dry run
    unknown: bool = False  # the call was not refused; its answer is missing, as why says


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcome of a Create, Delete, SetStatus, Patch or SetSize."""

    verb: str  # the decision's name
    kind: str
    namespace: str
    name: str
    uid: str = ""  # of the created or already existing object
    why: str = ""  # empty: success; deleting a missing object succeeds
    code: int = 0  # HTTP status if the API server refused

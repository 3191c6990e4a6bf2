"""Everything that can be asked of the outside world, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from central.model.event_reasons import GPU_UNHEALTHY


class Bind(NamedTuple):  # a tuple: thousands are made in a turn
    """Bind the pod to the node, where it should be given these GPUs (Cluster.intents tells its
    agent, container by container)."""

    pod: str  # uid
    namespace: str
    name: str
    node: str
    gpus: int = 0  # mask; 0 also where the node's GPUs are not known one by one
    # claims that must get their volumes first: which, or empty where one is made for this node
    claims: tuple[tuple[str, str], ...] = ()
    domains: tuple[tuple[str, str], ...] = ()  # annotations: where the node is


@dataclass(frozen=True, slots=True)
class Evict:
    pod: str
    namespace: str
    name: str
    node: str
    why: str
    trial: bool = False  # only ask whether it would be accepted


@dataclass(frozen=True, slots=True)
class UpdateGangStatus:
    """The gang's state changed: write it to the PodGroup's status, the pods' condition, an Event."""

    namespace: str
    gang: str  # the PodGroup's name, or the single pod's
    phase: str  # Pending, Inqueue, Running, Unknown, Completed
    reason: str  # the sentence
    has_object: bool  # a PodGroup object exists
    pods: tuple[
        str, ...
    ] = ()  # names of the waiting pods (a bound for Events: the first speaks for all)
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    quiet: bool = False  # no Event: its Job has one


@dataclass(frozen=True, slots=True)
class EmitWarning:
    """The pod's owner must know something that Lockstep does nothing about: an Event on the pod,
    and on its PodGroup where there is one."""

    namespace: str
    gang: str  # of the PodGroup, as is its uid; empty: none
    gang_uid: str
    pod: str  # uid
    name: str
    why: str
    reason: str = GPU_UNHEALTHY  # of the Event, in one word


@dataclass(frozen=True, slots=True)
class Create:
    """Make the object. One that stands there already is as good if the body's controller owns it
    too: what was asked for before a restart may have come to pass. Answered."""

    kind: str  # a name of central.kube.things
    namespace: str
    name: str
    body: Mapping[str, Any]
    renew: bool = False  # one that stands there already gets this body
    keys: bool = False  # a fresh pair of SSH keys belongs into it, if it is not there yet


@dataclass(frozen=True, slots=True)
class Delete:
    """Take the object of this uid away; pods with their own grace. Answered."""

    kind: str
    namespace: str
    name: str
    uid: str
    why: str
    foreground: bool = False  # what it owns goes first


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Write the whole status of the object of this uid. Answered; never two at once for one
    object: who decides waits for the answer."""

    kind: str
    namespace: str
    name: str
    uid: str
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge the body into the object of this uid. Answered."""

    kind: str
    namespace: str
    name: str
    uid: str
    body: Mapping[str, Any]


Decision = Bind | Evict | UpdateGangStatus | EmitWarning | Create | Delete | SetStatus | Patch

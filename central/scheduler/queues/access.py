"""Access rules: which gangs may use a queue, by its own rule and those of all queues above it.

A gang that may not use its queue takes part in nothing there: its demand raises no fair share, it is not the head of
a fifo queue, and it starts, reserves and evicts nothing.

Design: docs/design/queues.md
"""

from collections.abc import Collection, Mapping

from central.model import wording
from central.model.facts import QueueAccess
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.state.gangs import Gang

_ANY = ("system:serviceaccounts", "system:authenticated")


def refusing_queue(queue: Queue, gang: Gang, labels: Mapping[str, str]) -> Queue | None:
    """The first queue, from this one upwards, whose rule excludes the gang; None: it may use the queue. labels: of its
    namespace."""
    for above in queue.path:
        access = above.seen.access
        if access is not None and not _admits(access, gang, labels):
            return above
    return None


def describe(access: QueueAccess) -> str:
    """The rule, as in "namespaces team-a, team-b and users ..."."""
    parts = []
    if access.namespaces:
        parts.append(f"namespaces {wording.some(access.namespaces)}")
    if access.selector is not None:
        parts.append("namespaces that its namespaceSelector selects")
    if access.users:
        parts.append(f"users {wording.some(access.users)}")
    if access.groups:
        parts.append(f"groups {wording.some(access.groups)}")
    return " and ".join(parts) or "nobody"


def accounts(gang: Gang) -> frozenset[str]:
    """The ServiceAccounts of the gang's pods."""
    return frozenset(pod.seen.service_account or "default" for pod in gang.members.values())


def _admits(access: QueueAccess, gang: Gang, labels: Mapping[str, str]) -> bool:
    namespace = gang.namespace
    if namespace in access.namespaces:
        return True
    if access.selector is not None and all(each.matches(labels) for each in access.selector):
        return True
    if any(group in access.groups for group in (*_ANY, f"system:serviceaccounts:{namespace}")):
        return True
    prefix = f"system:serviceaccount:{namespace}:"
    named = {user.removeprefix(prefix) for user in access.users if user.startswith(prefix)}
    return _all_named(named, accounts(gang))


def _all_named(named: Collection[str], used: frozenset[str]) -> bool:
    """Returns whether all pods have an admitted account. Before there are pods, any admitted account of the namespace
    is enough, because the pods' is not known."""
    return bool(named) and used <= set(named)

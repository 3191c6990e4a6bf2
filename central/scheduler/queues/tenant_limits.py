"""The limits inside a queue of each namespace and of each user: how many of their gangs run at a time, and what these
use.

A gang's user is the one of its first pod, as an admission policy wrote it there. Gangs without one share what one user
may use in their namespace: pods without a name gain nothing.

Design: docs/design/quotas.md
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from central.model import wording
from central.model.resources import Sums
from central.scheduler.queues.gpu_currency import GpuCurrency
from central.scheduler.queues.queue_tree_node import NAMESPACE, USER, Queue, TenantUsage
from central.scheduler.queues.shortfall import GANGS, Shortfall
from central.scheduler.state.gangs import Gang

_NOTHING = TenantUsage()
_USER, _NAMESPACE, _UNNAMED = "user ", "namespace ", " (pods without a user)"


class Tenant(NamedTuple):
    """A namespace or a user that is limited in the queue."""

    queue: Queue
    whose: str  # for users: user alice
    usage: TenantUsage
    most_gangs: int | None
    most: Sums
    namespace: str = ""  # one of the two
    user: str = ""

    def never_starts(self, need: Sums) -> bool:
        """Returns whether the tenant's limits refuse the need even if nothing else of it runs."""
        return self.most_gangs == 0 or any(
            need.get(name, 0) > self.most[name] for name in self.most
        )

    @property
    def key(self) -> tuple[Queue, str, str]:
        return self.queue, NAMESPACE if self.namespace else USER, self.namespace or self.user

    def gangs_refusal(self, where: str, claimed: Callable[[str], int]) -> str:
        """Returns why the tenant may not run one gang more; empty: it may. where: the queue, for users. claimed: what
        claims in flight of other gangs will use of it, by resource."""
        if self.most_gangs is None:
            return ""
        running, kept_gangs = self.usage.running, claimed(GANGS)
        if running + kept_gangs < self.most_gangs:
            return ""
        never = f"{wording.NEVER}: " if not self.most_gangs else ""
        runs = f"{self.whose} in {where} runs {running_gangs(running, kept_gangs)}"
        return f"{never}{runs}, and may run {self.most_gangs} at a time"

    def amounts_refusal(self, need: Sums, where: str, claimed: Callable[[str], int]) -> str:
        """Returns why the tenant may not use the need as well; all else as in gangs_refusal()."""
        used = self.usage.used
        for resource, most in self.most.items():
            amount, have = need.get(resource, 0), used.get(resource, 0)
            if not amount or have + (keeps := claimed(resource)) + amount <= most:
                continue
            limit, whose = wording.quantity(resource, most), f"{self.whose} in {where}"
            if amount > most:
                needed = f"{wording.are(resource, amount)} needed"
                return f"{wording.NEVER}: {whose} may use {limit}; {needed}"
            taken = wording.amount(resource, have)
            needed = f"{wording.are(resource, amount, 'more')} needed"
            return f"{whose} uses {taken} of its {limit}{kept(resource, keeps)}; {needed}"
        return ""

    def shortfall(
        self, need: Sums, in_flight: Callable[[str], int], *, starts: bool
    ) -> Shortfall | None:
        """Returns what the tenant's own victims must free; None: nothing. in_flight: what claims of other gangs will
        take, less what terminating pods use. starts: the gang is not counted as running yet."""
        used = self.usage.used
        lacks = {
            resource: over
            for resource, most in self.most.items()
            if need.get(resource)
            and (over := used.get(resource, 0) + in_flight(resource) + need[resource] - most) > 0
        }
        if starts and self.most_gangs is not None:
            over = self.usage.running + in_flight(GANGS) + 1 - self.most_gangs
            if over > 0:
                lacks[GANGS] = over
        return Shortfall(self.queue, lacks, self.namespace, self.user) if lacks else None


def running_gangs(running: int, claimed: int) -> str:
    """Returns the number of running gangs, in words. claimed: gangs that will start when the victims of their claims
    have gone."""
    also = f", and keeps {claimed} for gangs whose victims terminate" if claimed else ""
    return wording.counted(running, "gang") + also


def kept(resource: str, claimed: int) -> str:
    """Returns what claims in flight will use beside what is used, as the end of a clause; empty: nothing."""
    if not claimed:
        return ""
    return f", {wording.are(resource, claimed)} kept for gangs whose victims terminate"


def tenants(currency: GpuCurrency, gang: Gang, queue: Queue) -> Iterator[Tenant]:
    """Yields the tenants that the gang counts for in the queue, as far as they are limited there."""
    seen, namespace = queue.seen, gang.namespace
    if seen.namespace_gangs is not None or seen.namespace_amounts:
        usage = queue.tenants.get((NAMESPACE, namespace), _NOTHING)
        most = currency.limits(seen.namespace_amounts)
        named = f"namespace {namespace}"
        yield Tenant(queue, named, usage, seen.namespace_gangs, most, namespace=namespace)
    if seen.user_gangs is not None or seen.user_amounts:
        user = gang.account.user if gang.account is not None else user_of(gang)
        usage = queue.tenants.get((USER, user), _NOTHING)
        yield Tenant(
            queue, user, usage, seen.user_gangs, currency.limits(seen.user_amounts), user=user
        )


def user_of(gang: Gang) -> str:
    """Returns the user that the gang counts for, as reasons name it; without one, the pods of its namespace that have
    none."""
    first = min(
        gang.members.values(), key=lambda pod: (pod.seen.created, pod.seen.order), default=None
    )
    name = first.seen.user if first is not None else ""
    return f"{_USER}{name}" if name else f"{_NAMESPACE}{gang.namespace}{_UNNAMED}"


def identity_of(user: str) -> tuple[str, str]:
    """The namespace and the name of what user_of() returned: of a user only the name, of pods without one both."""
    if user.startswith(_USER):
        return "", user.removeprefix(_USER)
    return user.removeprefix(_NAMESPACE).removesuffix(_UNNAMED), user

"""Gangs that take surplus of elastic gangs and end soon: the churn is charged to the tenant that causes it.

A tenant is a namespace in a queue. A stay is what one turn started at the expense of other tenants' elastic gangs;
it is short if more than half of its gangs are gone within a minute, because they ended or because they were deleted.
A short stay costs the others two changes of size, one to give the seats and one to take them back. Its price is the
time of which these are the share that an elastic gang spends on changes, and at least ten minutes. While a tenant
owes more than one stay it takes nothing of other tenants' elastic gangs. So one short stay has no consequence, and
in the long run there is one in as much time as it costs.

Inside a tenant nothing is charged: what its jobs take of each other is its own matter.

Design: docs/design/elastic-sizes.md
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from central.model.facts import TenantDebt
from central.scheduler.state.gangs import Gang, GangKey

CHURN = 0.05  # share of its running time that changes of size may cost an elastic gang
SHORT_S = 60.0
LEAST_PRICE_S = 600.0
MOST_OWED_S = 3600.0  # however many short stays were under way at once

Tenant = tuple[str, str]  # queue, namespace


def tenant(gang: Gang) -> Tenant:
    return gang.queue, gang.namespace


def _most_owed_s(price_s: float) -> float:
    return max(MOST_OWED_S, 2 * price_s)


@dataclass(slots=True)
class _Stay:
    tenant: Tenant
    began: float
    price_s: float
    gangs: list[GangKey]

    def is_over(self, gangs: Mapping[GangKey, Gang]) -> bool:
        gone = sum(key not in gangs or not _is_there(gangs[key]) for key in self.gangs)
        return 2 * gone > len(self.gangs)


def _is_there(gang: Gang) -> bool:
    return any(pod.alive and not pod.seen.deleting for pod in gang.members.values())


@dataclass(slots=True)
class _Debt:
    paid_at: float
    price_s: float  # of the latest stay

    @property
    def ends(self) -> float:
        """When it is one stay."""
        return self.paid_at - self.price_s


@dataclass(slots=True)
class ShortStays:
    """cost_s: of a change, by elastic gang. The autoscaler writes it."""

    cost_s: Mapping[GangKey, float] = field(default_factory=dict)
    _open: list[_Stay] = field(default_factory=list)
    _debts: dict[Tenant, _Debt] = field(default_factory=dict)

    def took(self, taker: Gang, victims: Iterable[Gang], now: float) -> None:
        """These gangs give seats for the taker."""
        own = tenant(taker)
        costs = [self.cost_s[v.key] for v in victims if v.key in self.cost_s and tenant(v) != own]
        if not costs:
            return
        price_s = max(LEAST_PRICE_S, 2 * max(costs) / CHURN)
        for stay in self._open:
            if stay.tenant == own and stay.began == now:  # of one turn
                stay.price_s = max(stay.price_s, price_s)
                stay.gangs.append(taker.key)
                return
        self._open.append(_Stay(own, now, price_s, [taker.key]))

    def look(self, gangs: Mapping[GangKey, Gang], now: float) -> list[float]:
        """Charges the stays that have ended. Returns when those who now owe too much may take surplus again."""
        ends = []
        still_open = []
        for stay in self._open:
            if now - stay.began > SHORT_S:
                continue
            if not stay.is_over(gangs):
                still_open.append(stay)
            elif (end := self._charge(stay, now)) > now:
                ends.append(end)
        self._open = still_open
        for name in [name for name, debt in self._debts.items() if debt.paid_at <= now]:
            del self._debts[name]
        return ends

    def _charge(self, stay: _Stay, now: float) -> float:
        debt = self._debts.get(stay.tenant)
        owed = max(0.0, debt.paid_at - now) if debt is not None else 0.0
        owed = max(owed, min(owed + stay.price_s, _most_owed_s(stay.price_s)))
        self._debts[stay.tenant] = _Debt(now + owed, stay.price_s)
        return self._debts[stay.tenant].ends

    def bars(self, claimant: Gang, now: float) -> bool:
        """Whether it takes nothing of other tenants' elastic gangs now."""
        return self.ends(claimant, now) is not None

    def ends(self, claimant: Gang, now: float) -> float | None:
        """Until when it takes nothing; None: it may."""
        debt = self._debts.get(tenant(claimant))
        return debt.ends if debt is not None and now < debt.ends else None

    def keeps(self, victim: Gang, claimant: Gang, now: float) -> bool:
        """Whether the victim's seats are kept from the claimant."""
        if not self.bars(claimant, now):
            return False
        return victim.key in self.cost_s and tenant(victim) != tenant(claimant)

    def debts(self, now: float) -> tuple[TenantDebt, ...]:
        """As they are to be written down, for a later leader."""
        return tuple(
            TenantDebt(*name, debt.paid_at - now, debt.price_s)
            for name, debt in self._debts.items()
            if debt.paid_at > now
        )

    def restore(self, at: float, debts: Iterable[TenantDebt], now: float) -> list[float]:
        """Debts that a leader before has written down at that time, by its clock. Returns when those who owe too much
        may take surplus again."""
        ends = []
        for each in debts:
            paid_at = min(at + each.owed_s, now + _most_owed_s(each.price_s))
            if paid_at > now:
                known = self._debts[each.queue, each.namespace] = _Debt(paid_at, each.price_s)
                if known.ends > now:
                    ends.append(known.ends)
        return ends

    def adopt(self, before: "ShortStays") -> None:
        """What another one knew of the same tenants."""
        self._open, self._debts = before._open, before._debts

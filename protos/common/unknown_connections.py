"""Limits for connections on which no token was shown yet. Pure: the time is an argument, and closing is left to the
caller.

Unknown connections are few per peer and in all, and end after UnknownLimits.unknown_s. So idle connections, half-open
TLS handshakes and slow writers take nothing from callers that are known.
"""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class UnknownLimits:
    """Connections, and the seconds within which a connection must show a valid token."""

    unknown_per_peer: int = 256
    unknown: int = 2048
    unknown_s: float = 10.0
    chance_s: float = 1.0  # within which a connection is not closed for another one
    fair: int = 16  # unknown ones of a peer that have this chance if there are too many in all


@dataclass(slots=True)
class UnknownConnections:
    """Connections are numbers that the caller chooses. Methods return those that must be closed now; the
    table has forgotten them already."""

    limits: UnknownLimits = field(default_factory=UnknownLimits)
    # deadline, peer; oldest first
    _unknown: dict[int, tuple[float, str]] = field(default_factory=dict)
    _silent: dict[int, None] = field(default_factory=dict)  # of the unknown ones; oldest first
    _per_peer: Counter[str] = field(default_factory=Counter)

    def accept(self, connection: int, peer: str, now: float) -> list[int]:
        """A new connection. Among too many of its peer it takes the place of the oldest one, and among too
        many in all that of the oldest one of the peer with the most. First to go are those that have sent
        nothing. Others younger than Limits.chance_s stay, so that those that came first may finish when all
        agents come at once: then the new one is closed. In all, peers with more than their fair part have no
        such chance."""
        closing = []
        if self._per_peer[peer] >= self.limits.unknown_per_peer:
            closing = self._oldest(peer, now)
        elif len(self._unknown) >= self.limits.unknown:
            ((most, count),) = self._per_peer.most_common(1)
            fair = most != peer and count > self.limits.fair
            closing = self._oldest(most, now + self.limits.chance_s if fair else now)
        else:
            self._add(connection, peer, now)
            return []
        if not closing:
            return [connection]
        self.forget(closing[0])
        self._add(connection, peer, now)
        return closing

    def _oldest(self, peer: str, now: float) -> list[int]:
        """The peer's unknown connection that goes first, if one does."""
        for connection in self._silent:
            if self._unknown[connection][1] == peer:
                return [connection]
        latest = now + self.limits.unknown_s - self.limits.chance_s
        for connection, (deadline, of) in self._unknown.items():
            if deadline > latest:
                return []
            if of == peer:
                return [connection]
        return []

    def _add(self, connection: int, peer: str, now: float) -> None:
        self._unknown[connection] = (now + self.limits.unknown_s, peer)
        self._silent[connection] = None
        self._per_peer[peer] += 1

    def spoke(self, connection: int) -> None:
        """Records that its client has sent data."""
        self._silent.pop(connection, None)

    def expired(self, now: float) -> list[int]:
        """Returns the connections that have shown no token in time."""
        late = []
        for connection, (deadline, _) in self._unknown.items():
            if deadline > now:
                break
            late.append(connection)
        for connection in late:
            self.forget(connection)
        return late

    def next_deadline(self) -> float | None:
        """Returns the time at which expired() will next find one; None if there is no unknown connection."""
        return next((deadline for deadline, _ in self._unknown.values()), None)

    def forget(self, connection: int) -> None:
        """Removes a connection that has ended, or is known."""
        if (found := self._unknown.pop(connection, None)) is not None:
            count_down(self._per_peer, found[1])
            self._silent.pop(connection, None)


def count_down(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]

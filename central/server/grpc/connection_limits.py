"""The rules for connections to the gRPC port. Pure: the time is an argument, and closing is left to the caller.

A connection is unknown until a call on it has shown a valid token, and then belongs to that caller. Unknown
connections are few per peer and in all, and end after Limits.unknown_s. So idle connections, half-open TLS
handshakes and slow writers take nothing from callers that are known, and agents have places of their own.
"""

from collections import Counter
from dataclasses import dataclass, field

from central.model.identity import Role


@dataclass(frozen=True, slots=True)
class Limits:
    """Connections, and the seconds within which a connection must show a valid token."""

    unknown_per_peer: int = 256
    unknown: int = 2048
    unknown_s: float = 10.0
    chance_s: float = 1.0  # within which a connection gives way to no other one
    unknown_bytes: int = 48 << 10  # that it may send until then: more than the longest token
    refusals: int = 8  # calls without a valid token until the connection is closed
    fair: int = 16  # unknown ones of a peer that have this chance if there are too many in all
    per_agent: int = 8  # of one node
    per_user: int = 16
    per_coordinator: int = 4
    agents: int = 20_000
    users: int = 1_000
    coordinators: int = 4_000


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a known connection."""

    user: str
    node: str = ""  # of an agent
    pod_uid: str = ""  # of a coordinator

    @property
    def role(self) -> Role:
        return "agent" if self.node else "coordinator" if self.pod_uid else "user"


@dataclass(slots=True)
class ConnectionTable:
    """Connections are numbers that the caller chooses. Methods return those that must be closed now; the
    table has forgotten them already."""

    limits: Limits = field(default_factory=Limits)
    # deadline, peer; oldest first
    _unknown: dict[int, tuple[float, str]] = field(default_factory=dict)
    _silent: dict[int, None] = field(default_factory=dict)  # of the unknown ones; oldest first
    _per_peer: Counter[str] = field(default_factory=Counter)
    _owner: dict[int, Owner] = field(default_factory=dict)
    _owned: dict[Owner, dict[int, None]] = field(default_factory=dict)  # oldest first
    _refused: Counter[int] = field(default_factory=Counter)
    _known: Counter[Role] = field(default_factory=Counter)

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

    def admit(self, connection: int, owner: Owner) -> list[int]:
        """A call on the connection has shown a valid token. A caller with too many connections loses its
        oldest one. With too many callers the new connection is refused."""
        if self._owner.get(connection) == owner or not self._has(connection):
            return []
        self.forget(connection)
        each, most = self._allowed(owner.role)
        mine = self._owned.get(owner, {})
        closing = []
        if len(mine) >= each:
            closing.append(next(iter(mine)))
            self.forget(closing[0])
        elif self._known[owner.role] >= most:
            return [connection]
        self._owned.setdefault(owner, {})[connection] = None
        self._owner[connection] = owner
        self._known[owner.role] += 1
        return closing

    def _allowed(self, role: Role) -> tuple[int, int]:
        """Connections of one caller, and of all callers of the role."""
        limits = self.limits
        match role:
            case "agent":
                return limits.per_agent, limits.agents
            case "coordinator":
                return limits.per_coordinator, limits.coordinators
            case "user":
                return limits.per_user, limits.users

    def refuse(self, connection: int) -> list[int]:
        """A call on the connection has shown no valid token."""
        if not self._has(connection):
            return []
        self._refused[connection] += 1
        if self._refused[connection] < self.limits.refusals:
            return []
        self.forget(connection)
        return [connection]

    def owner(self, connection: int) -> Owner | None:
        """The user whose valid token was shown on it; None: none yet."""
        return self._owner.get(connection)

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
        """The connection has ended."""
        self._refused.pop(connection, None)
        if (found := self._unknown.pop(connection, None)) is not None:
            _count_down(self._per_peer, found[1])
            self._silent.pop(connection, None)
        if (owner := self._owner.pop(connection, None)) is not None:
            self._known[owner.role] -= 1
            mine = self._owned[owner]
            del mine[connection]
            if not mine:
                del self._owned[owner]

    def counts(self) -> dict[str, int]:
        """Connections by state."""
        roles: tuple[Role, ...] = ("agent", "user", "coordinator")
        return {"unknown": len(self._unknown), **{role: self._known[role] for role in roles}}

    def _has(self, connection: int) -> bool:
        return connection in self._unknown or connection in self._owner


def _count_down(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]

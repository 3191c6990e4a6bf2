"""The rules for connections to the gRPC port. Pure: the time is an argument, and closing is left to the caller.

A connection is unknown until a call on it has shown a valid token, and then belongs to that caller. Agents have places
of their own.
"""

from collections import Counter
from dataclasses import dataclass, field

from central.model.identity import Role
from protos.common.unknown_connections import UnknownConnections, UnknownLimits


@dataclass(frozen=True, slots=True)
class Limits(UnknownLimits):
    """Connections that may be known, and what others may send until then."""

    unknown_bytes: int = 48 << 10  # that it may send until then: more than the longest token
    refusals: int = 8  # calls without a valid token until the connection is closed
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
class ConnectionTable(UnknownConnections):
    """Adds the owners of known connections."""

    limits: Limits = field(default_factory=Limits)
    _owner: dict[int, Owner] = field(default_factory=dict)
    _owned: dict[Owner, dict[int, None]] = field(default_factory=dict)  # oldest first
    _refused: Counter[int] = field(default_factory=Counter)
    _known: Counter[Role] = field(default_factory=Counter)

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

    def forget(self, connection: int) -> None:
        """The connection has ended."""
        self._refused.pop(connection, None)
        UnknownConnections.forget(self, connection)
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

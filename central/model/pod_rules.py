"""Scheduling rules of a pod as values: node affinity, inter-pod affinity and anti-affinity, topology spread and
host ports, with the meaning that Kubernetes gives them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Labels = tuple[tuple[str, str], ...]  # sorted by key
EVERYWHERE = ""  # a port that listens on every address


@dataclass(frozen=True, slots=True)
class Requirement:
    """One match expression of a node selector term; key "metadata.name" with field=True."""

    key: str
    operator: str  # In NotIn Exists DoesNotExist Gt Lt
    values: tuple[str, ...]
    field: bool = False


# terms are alternatives; all requirements of a term hold
NodeTerms = tuple[tuple[Requirement, ...], ...]


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement of a label selector."""

    key: str
    operator: str  # In NotIn Exists DoesNotExist
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects pods by label, in namespaces by name or by label. None selects nothing, an empty tuple
    everything."""

    namespaces: tuple[str, ...]
    labels: tuple[Expression, ...] | None
    namespace_labels: tuple[Expression, ...] | None = None

    def matches(self, namespace: str, labels: Mapping[str, str], about: Mapping[str, str]) -> bool:
        """about: the labels of the namespace."""
        inside = namespace in self.namespaces or (
            self.namespace_labels is not None
            and all(expression.matches(about) for expression in self.namespace_labels)
        )
        return (
            inside
            and self.labels is not None
            and all(expression.matches(labels) for expression in self.labels)
        )


@dataclass(frozen=True, slots=True)
class Peers:
    """The pods that match all of the selectors."""

    selectors: tuple[Selector, ...]
    leaving: bool = True  # count pods that are being deleted

    def match(
        self, namespace: str, labels: Mapping[str, str], about: Mapping[str, str], leaving: bool
    ) -> bool:
        return (self.leaving or not leaving) and all(
            selector.matches(namespace, labels, about) for selector in self.selectors
        )


@dataclass(frozen=True, slots=True)
class Near:
    """Required pod affinity: only domains that have peers, for each of the node labels. If there are none and the
    pod matches itself, it may go anywhere."""

    peers: Peers
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Apart:
    """Required anti-affinity: no domain of the node label that has peers."""

    peers: Peers
    key: str


@dataclass(frozen=True, slots=True)
class Spread:
    """Topology spread: at most `skew` more peers in a domain than in the domain with the fewest."""

    peers: Peers
    key: str
    skew: int
    domains: int = 1  # minDomains: with fewer domains the minimum counts as 0
    affinity: bool = True  # count only nodes that match the pod's node affinity
    taints: bool = False  # count only nodes whose taints the pod tolerates


@dataclass(frozen=True, slots=True)
class Nearer:
    """Preferred pod affinity; with a weight below 0, anti-affinity."""

    peers: Peers
    key: str
    weight: int


@dataclass(frozen=True, slots=True)
class Port:
    protocol: str
    number: int
    address: str = EVERYWHERE

    def conflicts(self, other: "Port") -> bool:
        return (self.protocol, self.number) == (other.protocol, other.number) and (
            EVERYWHERE in (self.address, other.address) or self.address == other.address
        )


@dataclass(frozen=True, slots=True)
class Rules:
    near: Near | None = None
    apart: tuple[Apart, ...] = ()
    spread: tuple[Spread, ...] = ()
    ports: tuple[Port, ...] = ()
    # Preferences:
    nodes: tuple[tuple[int, tuple[Requirement, ...]], ...] = ()  # terms and their weights
    nearer: tuple[Nearer, ...] = ()
    even: tuple[Spread, ...] = ()

    @property
    def has_preferences(self) -> bool:
        return bool(self.nodes or self.nearer or self.even)

    def peers(self) -> Iterator[Peers]:
        if self.near is not None:
            yield self.near.peers
        for apart in self.apart:
            yield apart.peers
        for spread in (*self.spread, *self.even):
            yield spread.peers
        for near in self.nearer:
            yield near.peers

"""What a pod asks of its node and of the pods beside it, as values: labels, whom it joins, whom it
avoids, how evenly it is spread, and which ports of the node it takes. Terms are as Kubernetes defines them."""

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


NodeTerms = tuple[tuple[Requirement, ...], ...]  # alternatives; what is inside one holds together


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
    """Pods by label in namespaces that are named, or chosen by their labels. None: none of them;
    no expression: all of them."""

    namespaces: tuple[str, ...]
    labels: tuple[Expression, ...] | None
    namespace_labels: tuple[Expression, ...] | None = None

    def matches(self, namespace: str, labels: Mapping[str, str], about: Mapping[str, str]) -> bool:
        """about: the namespace's labels."""
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
    """The pods that match every one of the selectors."""

    selectors: tuple[Selector, ...]
    leaving: bool = True  # pods that are being deleted count too

    def match(
        self, namespace: str, labels: Mapping[str, str], about: Mapping[str, str], leaving: bool
    ) -> bool:
        return (self.leaving or not leaving) and all(
            selector.matches(namespace, labels, about) for selector in self.selectors
        )


@dataclass(frozen=True, slots=True)
class Near:
    """Only where such peers are already, in the same domain by each of the node labels; the first of
    its own kind may go anywhere."""

    peers: Peers
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Apart:
    """Not where such peers are in the same domain by the node label."""

    peers: Peers
    key: str


@dataclass(frozen=True, slots=True)
class Spread:
    """Of such peers at most `skew` more in a domain than in the domain that has the fewest."""

    peers: Peers
    key: str
    skew: int
    domains: int = 1  # with fewer of them the fewest counts as none
    affinity: bool = True  # only nodes that the pod's node selector and affinity allow count
    taints: bool = False  # only nodes whose taints it tolerates count


@dataclass(frozen=True, slots=True)
class Nearer:
    """Rather where such peers are in the same domain by the node label; below 0: rather not."""

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
    # What it would rather have, where all else is equal:
    nodes: tuple[tuple[int, tuple[Requirement, ...]], ...] = ()  # terms and their weights
    nearer: tuple[Nearer, ...] = ()
    even: tuple[Spread, ...] = ()

    @property
    def leans(self) -> bool:
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

"""Free capacity and pods that are placed on it, as rows of an integer program."""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TypeVar

from tests.central.scheduler.exact.model import Model, Sum, total

Amounts = Mapping[str, int]
Node = TypeVar("Node", bound=Hashable)
Free = Mapping[Node, Mapping[str, Sum | int]]  # by node and resource
Group = tuple[Amounts, Sum | int]  # what each pod requests, and how many there are


def place(
    model: Model,
    free: Free[Node],
    groups: Sequence[Group],
    domains: Sequence[Collection[Node]] = (),
) -> list[dict[Node, Sum]]:
    """All pods fit, in one of the domains if there are any. Returns how many pods of each group are on each node."""
    ends = [model.limits(Sum() + count)[1] for _, count in groups]
    found = [{node: model.integer(0, most) for node in free} for most in ends]
    for (_, count), placed in zip(groups, found, strict=True):
        model.equal(total(placed.values()), count)
    for node, amounts in free.items():
        for name in {name for request, _ in groups for name in request}:
            used = total(
                placed[node] * request.get(name, 0)
                for (request, _), placed in zip(groups, found, strict=True)
            )
            model.at_most(used, amounts.get(name, 0))
    if domains:
        chosen = [model.binary() for _ in domains]
        model.equal(total(chosen), 1)
        for node in free:
            inside = total(one for one, nodes in zip(chosen, domains, strict=True) if node in nodes)
            for placed, most in zip(found, ends, strict=True):
                model.at_most(placed[node], inside * most)
    return found


def fits(
    free: Free[Node], groups: Sequence[Group], domains: Sequence[Collection[Node]] = ()
) -> bool:
    model = Model()
    place(model, free, groups)
    return model.is_possible()


def opened(
    model: Model, placed: Sequence[Mapping[Node, Sum]], domains: Sequence[Collection[Node]]
) -> Sum:
    """How many of these disjoint domains have a pod."""
    found = Sum()
    for nodes in domains:
        is_open = model.binary()
        found += is_open
        for one in placed:
            for node in nodes:
                model.at_most(one[node], is_open * model.limits(one[node])[1])
    return found


def nodes_of(amounts: Mapping[Node, Sum | int], resource: str = "gpu") -> Free[Node]:
    """Nodes with one resource."""
    return {node: {resource: amount} for node, amount in amounts.items()}


def pods_of(sizes: Sequence[int], resource: str = "gpu") -> list[Group]:
    return [({resource: size}, count) for size, count in Counter(sizes).items()]

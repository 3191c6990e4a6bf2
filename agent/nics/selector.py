"""Selects the NICs to advertise, by the flag --rdma-devices. Pure. The flag is a list of selectors,
separated by commas; a NIC is advertised if one of them matches.

    auto                          the rails: NICs that share a PCIe switch with a GPU, else the
                                  fastest NICs
    all, none
    mlx5_*                        by name, with * and ?
    vendor=15b3+link=InfiniBand   by all of these: vendor, device, driver, link, net (network
                                  interface), pci (address), pf (physical NIC)
    vf, vf+pf=mlx5_0              virtual functions, instead of their physical NICs"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from protos.nearest import rails
from protos.topology import Hca, NodeTopology

KEYS = ("vendor", "device", "driver", "link", "net", "pci", "pf")
VIRTUAL = "vf"
AUTO, ALL, NONE = "auto", "all", "none"


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a selector; terms are joined by +."""

    key: str  # of KEYS, or name, auto, all, vf
    pattern: str = ""


def parse(text: str) -> tuple[str, ...]:
    """The selectors. Raises ValueError with a message for the user."""
    found = tuple(each.strip() for each in text.split(",") if each.strip())
    if not found:
        raise ValueError("no NIC selected; use none to advertise none")
    if NONE in found and len(found) > 1:
        raise ValueError("none can't be combined with other selectors")
    for each in found:
        _terms(each)
    return found


def _terms(selector: str) -> tuple[Term, ...]:
    return tuple(_term(each.strip()) for each in selector.split("+"))


def _term(text: str) -> Term:
    key, equals, pattern = text.partition("=")
    if not equals:
        if not text:
            raise ValueError("empty term beside a +")
        return Term(text) if text in (AUTO, ALL, NONE, VIRTUAL) else Term("name", text)
    if key not in KEYS or not pattern:
        raise ValueError(f"{text!r} is not one of {', '.join(f'{each}=...' for each in KEYS)}")
    return Term(key, pattern.lower())


def functions(selectors: Sequence[str]) -> bool:
    """Returns whether virtual functions are to be listed as NICs."""
    return any(Term(VIRTUAL) in _terms(each) for each in selectors)


def served(topology: NodeTopology, selectors: Sequence[str]) -> tuple[Hca, ...]:
    """The NICs that match a selector."""
    near = frozenset(rails(topology))
    parsed = [_terms(each) for each in selectors]
    return tuple(
        hca for hca in topology.hcas if any(_matches(hca, terms, near) for terms in parsed)
    )


def unmatched(topology: NodeTopology, selectors: Sequence[str]) -> tuple[str, ...]:
    """The selectors that match none of the machine's NICs; none on a machine without NICs."""
    if not topology.hcas:
        return ()
    return tuple(
        each
        for each in selectors
        if each not in (AUTO, ALL, NONE) and not served(topology, (each,))
    )


def _matches(hca: Hca, terms: Sequence[Term], near: frozenset[str]) -> bool:
    virtual = Term(VIRTUAL) in terms
    return virtual == bool(hca.physical) and all(_term_matches(hca, term, near) for term in terms)


def _term_matches(hca: Hca, term: Term, near: frozenset[str]) -> bool:
    if term.key == AUTO:
        return hca.name in near or hca.physical in near
    if term.key not in KEYS:
        return term.key in (ALL, VIRTUAL) or (
            term.key == "name" and fnmatchcase(hca.name, term.pattern)
        )
    values = {
        "vendor": hca.vendor.removeprefix("0x"),
        "device": hca.device.removeprefix("0x"),
        "driver": hca.driver,
        "link": hca.link_layer,
        "net": hca.net,
        "pci": hca.pci,
        "pf": hca.physical,
    }[term.key]
    pattern = term.pattern.removeprefix("0x")
    return any(fnmatchcase(each.lower(), pattern) for each in values.split(","))

"""Which network cards are offered: what --rdma-devices says, word by word. Pure.

    auto                          the rails: cards that share a PCIe switch with a GPU, else the fastest
    all, none
    mlx5_*                        names
    vendor=15b3+link=InfiniBand   what all holds of a card: vendor, device, driver, link, net (its network
                                  interface), pci (its address)
    vf, vf+pf=mlx5_0              virtual functions, instead of the cards that they are part of

Alternatives are separated by commas."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from protos.nearest import rails
from protos.topology import Hca, NodeTopology

KEYS = ("vendor", "device", "driver", "link", "net", "pci", "pf")
VIRTUAL = "vf"
AUTO, ALL, NONE = "auto", "all", "none"


@dataclass(frozen=True, slots=True)
class Word:
    key: str  # of KEYS, or name, auto, all, vf
    pattern: str = ""


def parse(text: str) -> tuple[str, ...]:
    """The alternatives. Raises ValueError with a sentence."""
    found = tuple(each.strip() for each in text.split(",") if each.strip())
    if not found:
        raise ValueError("it names no network card; none offers none")
    if NONE in found and len(found) > 1:
        raise ValueError("none stands alone")
    for each in found:
        _words(each)
    return found


def _words(alternative: str) -> tuple[Word, ...]:
    return tuple(_word(each.strip()) for each in alternative.split("+"))


def _word(text: str) -> Word:
    key, equals, pattern = text.partition("=")
    if not equals:
        if not text:
            raise ValueError("there is an empty word beside a +")
        return Word(text) if text in (AUTO, ALL, NONE, VIRTUAL) else Word("name", text)
    if key not in KEYS or not pattern:
        raise ValueError(f"{text!r} is not one of {', '.join(f'{each}=...' for each in KEYS)}")
    return Word(key, pattern.lower())


def functions(alternatives: Sequence[str]) -> bool:
    """Whether virtual functions are wanted as cards of their own."""
    return any(Word(VIRTUAL) in _words(each) for each in alternatives)


def served(topology: NodeTopology, alternatives: Sequence[str]) -> tuple[Hca, ...]:
    near = frozenset(rails(topology))
    wanted = [_words(each) for each in alternatives]
    return tuple(hca for hca in topology.hcas if any(_suits(hca, words, near) for words in wanted))


def idle(topology: NodeTopology, alternatives: Sequence[str]) -> tuple[str, ...]:
    """The alternatives that no card of the machine suits, though there are cards."""
    if not topology.hcas:
        return ()
    return tuple(
        each
        for each in alternatives
        if each not in (AUTO, ALL, NONE) and not served(topology, (each,))
    )


def _suits(hca: Hca, words: Sequence[Word], near: frozenset[str]) -> bool:
    virtual = Word(VIRTUAL) in words
    return virtual == bool(hca.physical) and all(_holds(hca, word, near) for word in words)


def _holds(hca: Hca, word: Word, near: frozenset[str]) -> bool:
    if word.key == AUTO:
        return hca.name in near or hca.physical in near
    if word.key not in KEYS:
        return word.key in (ALL, VIRTUAL) or (
            word.key == "name" and fnmatchcase(hca.name, word.pattern)
        )
    told = {
        "vendor": hca.vendor.removeprefix("0x"),
        "device": hca.device.removeprefix("0x"),
        "driver": hca.driver,
        "link": hca.link_layer,
        "net": hca.net,
        "pci": hca.pci,
        "pf": hca.physical,
    }[word.key]
    pattern = word.pattern.removeprefix("0x")
    return any(fnmatchcase(each.lower(), pattern) for each in told.split(","))

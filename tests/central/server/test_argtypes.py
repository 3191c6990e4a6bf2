"""Each type of a flag's value at its bounds: what it reads, and the sentence for what it refuses."""

import argparse
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from central.model.facts import Taint
from central.server import argtypes, settings
from central.server.argtypes import RULES_BYTES, add_flag

READ: list[tuple[Callable[[str], Any], str, Any]] = [
    (argtypes.names, "", ()),
    (argtypes.names, " a, ,b,", ("a", "b")),
    (argtypes.some_names, "a", ("a",)),
    (argtypes.label_keys, "", ()),
    (argtypes.label_keys, "a.b/c,d", ("a.b/c", "d")),
    (argtypes.mig_fractions, "nvidia.com/mig-1g.5gb=1/7", (("nvidia.com/mig-1g.5gb", Fraction(1, 7)),)),
    (argtypes.mig_fractions, "nvidia.com/mig-7g.40gb=1", (("nvidia.com/mig-7g.40gb", Fraction(1)),)),
    (argtypes.node_condition, "GpuUnhealthy", ("GpuUnhealthy", "True")),
    (argtypes.node_condition, "GpuUnhealthy=False", ("GpuUnhealthy", "False")),
    (argtypes.node_taint, "a/b=c:NoSchedule", Taint("a/b", "c", "NoSchedule")),
    (argtypes.node_taint, "a:PreferNoSchedule", Taint("a", "", "PreferNoSchedule")),
    (argtypes.node_taint, "a=:NoExecute", Taint("a", "", "NoExecute")),
    (argtypes.address, "h:1", "h:1"),
    (argtypes.address, "[::1]:65535", "[::1]:65535"),
    (argtypes.listen, "", ""),
    (argtypes.listen, "h:0", "h:0"),
    (argtypes.listen, "h:80", "h:80"),
    (argtypes.collector, "", ""),
    (argtypes.port, "0", 0),
    (argtypes.port, "65535", 65535),
    (argtypes.whole, "1", 1),
    (argtypes.whole, "999999999", 10**9 - 1),
    (argtypes.number, "0", 0),
    (argtypes.number, str(2**63 - 1), 2**63 - 1),
    (argtypes.share, "0", 0.0),
    (argtypes.share, "1", 1.0),
    (argtypes.share, "0.5", 0.5),
    (argtypes.seconds, "0", 0.0),
    (argtypes.seconds, "999999999", 999_999_999.0),
]  # fmt: skip

REFUSED: list[tuple[Callable[[str], Any], str, str]] = [
    (argtypes.names, "a,b,a", "contains a name twice"),
    (argtypes.some_names, " , ", "contains no name"),
    (argtypes.label_keys, "node", "node is a built-in level"),
    (argtypes.label_keys, "a,island", "island is a built-in level"),
    (argtypes.label_keys, "a b", '"a b" is not a label key'),
    (argtypes.mig_fractions, "nvidia.com/gpu=1", "nvidia.com/gpu is not a MIG resource"),
    (argtypes.mig_fractions, "nvidia.com/mig-1g.5gb=0", '"0" is not a part of a GPU'),
    (argtypes.mig_fractions, "nvidia.com/mig-1g.5gb=2", '"2" is not a part of a GPU'),
    (argtypes.mig_fractions, "nvidia.com/mig-1g.5gb=x", '"x" is not a part of a GPU'),
    (argtypes.mig_fractions, "nvidia.com/mig-1g.5gb=1/7,nvidia.com/mig-1g.5gb=1/4", "twice"),
    (argtypes.node_condition, "=True", "is not a condition type"),
    (argtypes.node_condition, "A=Unknown", '"Unknown" is not a status'),
    (argtypes.node_condition, "A=", '"" is not a status'),
    (argtypes.node_taint, "a=b", "is not KEY[=VALUE]:EFFECT"),
    (argtypes.node_taint, "a=b:Never", "is not KEY[=VALUE]:EFFECT"),
    (argtypes.node_taint, "a=b c:NoSchedule", '"a=b c" is not KEY or KEY=VALUE'),
    (argtypes.node_taint, "=b:NoSchedule", '"=b" is not KEY or KEY=VALUE'),
    (argtypes.address, "h", "is not HOST:PORT"),
    (argtypes.address, ":1", "is not HOST:PORT"),
    (argtypes.address, "h:0", "is not HOST:PORT"),
    (argtypes.address, "h:65536", "is not HOST:PORT"),
    (argtypes.address, "h:²", "is not HOST:PORT"),
    (argtypes.listen, ":0", "is not HOST:PORT"),
    (argtypes.listen, "h", "is not HOST:PORT"),
    (argtypes.collector, "ftp://x", "ftp"),
    (argtypes.port, "65536", "is not a port (0 to 65535)"),
    (argtypes.port, "-1", "is not a port (0 to 65535)"),
    (argtypes.whole, "0", "is not a whole number above 0"),
    (argtypes.whole, "1000000000", "is not a whole number above 0"),
    (argtypes.whole, "x", "is not a whole number above 0"),
    (argtypes.whole, "²", "is not a whole number above 0"),
    (argtypes.number, str(2**63), "is not a whole number"),
    (argtypes.number, "-1", "is not a whole number"),
    (argtypes.number, "x", "is not a whole number"),
    (argtypes.share, "1.01", "is not a number from 0 to 1"),
    (argtypes.share, "-0.1", "is not a number from 0 to 1"),
    (argtypes.share, "nan", "is not a number from 0 to 1"),
    (argtypes.share, "x", "is not a number from 0 to 1"),
    (argtypes.seconds, "1e9", "is not a number of seconds"),
    (argtypes.seconds, "-1", "is not a number of seconds"),
    (argtypes.seconds, "nan", "is not a number of seconds"),
    (argtypes.seconds, "soon", "is not a number of seconds"),
]


@pytest.mark.parametrize(("kind", "text", "value"), READ)
def test_what_is_read(kind: Callable[[str], Any], text: str, value: Any) -> None:
    assert kind(text) == value


@pytest.mark.parametrize(("kind", "text", "says"), REFUSED)
def test_what_is_refused(kind: Callable[[str], Any], text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        kind(text)


def test_the_file_of_gang_rules_is_bounded_and_named(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("podGroups: []".ljust(RULES_BYTES))
    assert argtypes.gang_rules(str(file)) == ()
    for content, says in (
        (b"podGroups: []".ljust(RULES_BYTES + 1), f"more than {RULES_BYTES} bytes"),
        (b"\xff", "utf-8"),
        (b"a: [", ""),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=f"^{re.escape(str(file))}: .*{says}"):
            argtypes.gang_rules(str(file))


def test_a_flag_and_its_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("X", raising=False)

    def made(typed: str, **more: Any) -> tuple[Any, str]:
        action = add_flag(argparse.ArgumentParser(), typed, "about", **more)
        return action.default, str(action.help)

    assert made("--a N", default=3) == (3, "about (default 3)")
    assert made("--a N", default=0.5) == (0.5, "about (default 0.5)")
    assert made("--a N", default=2.0) == (2.0, "about (default 2)")
    assert made("--a N", default=("x", "y")) == (("x", "y"), "about (default x,y)")
    assert made("--a N", default=["x"]) == (["x"], "about (default x)")
    assert made("--a N") == ("", "about")
    assert made("--a N", default=None) == (None, "about")
    assert made("--a N", default=9, shown="nine") == (9, "about (default nine)")
    assert made("--a N", env="X") == ("", "about (env X)")
    assert made("--a") == (False, "about")
    assert made("--a", choices=("x", "y"), default="x") == ("x", "about (default x)")
    monkeypatch.setenv("X", "7")
    assert made("--a N", env="X", default="3") == ("7", "about (env X; default 7)")
    assert made("--a N", env="X", default="3", shown="nine") == ("7", "about (env X; default 7)")


def test_the_scheduler_reads_each_flag_by_its_own_type() -> None:
    parser = argparse.ArgumentParser()
    settings.add_flags(parser)
    types = {action.metavar: action.type for action in parser._actions if action.metavar}
    assert types["S"] is argtypes.seconds
    assert types["SHARE"] is argtypes.share
    assert types["HOST:PORT"] is argtypes.listen
    assert types["RESOURCE,..."] is types["NAME,..."] is argtypes.some_names

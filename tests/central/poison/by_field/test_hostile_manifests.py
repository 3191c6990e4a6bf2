"""`lockstep simulate` with hostile fields: a result, or a refusal of one sentence that names file and document; never a
traceback, and nothing that a terminal would obey."""

import json
import random
from pathlib import Path

import pytest

from central.cli.main import main
from tests.central.poison.by_field.examples import Watched, watched
from tests.central.poison.by_field.field_check import as_sent
from tests.central.poison.by_field.field_walk import apply, changes

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n0", "annotations": {"lockstep.dev/capture": "dgx-a100-8"}},
}
KINDS = [each for each in watched() if " " not in each.name]


@pytest.mark.parametrize("each", [3, pytest.param(60, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("one", KINDS, ids=lambda each: each.name)
def test_a_changed_manifest(
    one: Watched, each: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(one.name)
    resource, file = one.kind.resource, tmp_path / "in.json"
    of_kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    for _ in range(each):
        raw = {**of_kind, **dice.choice(one.examples)()}
        change = dice.choice([*changes(raw)])
        file.write_bytes(json.dumps(NODE).encode() + b"\n---\n" + as_sent(apply(raw, change)))
        code = main(["simulate", str(file), "--until", "10m"])
        check(code, *capsys.readouterr(), where=f"{one.name}: {change}")


def check(code: int, out: str, err: str, where: str) -> None:
    assert code in (0, 2), where
    assert code == 0 or "in.json: document 2" in err, f"{where}: {err}"
    odd = [line for line in (out + err).split("\n") if not line.isprintable()]
    assert not odd, f"{where}: {odd}"


@pytest.mark.parametrize("kind", ["a\0b", "\x1b[31mred", "\u202etxt"])
def test_a_kind_that_a_terminal_would_obey(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.json"
    file.write_text(f"{json.dumps(NODE)}\n---\n{json.dumps({**NODE, 'kind': kind})}")
    check(main(["simulate", str(file), "--until", "10m"]), *capsys.readouterr(), where=kind)

"""The outputs that the documents show are those of the programs."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from central.cli import main as cli
from tests.docs.pages import DOCS, ROOT

EXAMPLES = ROOT / "daemonset/examples"


def normal(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def simulated(paths: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `lockstep simulate` prints for the cluster of docs/how-to/simulate.md and these files."""
    page = (DOCS / "how-to/simulate.md").read_text()
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0])
    assert cli.main(["simulate", str(cluster), *map(str, paths), "--until", "1h"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("page", "example"),
    [
        ("concepts/gangs.md", "groups.yaml"),
        ("how-to/share-gpus.md", "share.yaml"),
        ("how-to/simulate.md", "gang.yaml"),
    ],
)
def test_placements(
    page: str, example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = simulated([EXAMPLES / example], tmp_path, capsys)
    rows = [line for line in out.splitlines() if line.startswith("default/")]
    shown = normal((DOCS / page).read_text())
    assert rows
    assert [row for row in rows if normal(row) not in shown] == []


def reason(out: str) -> str:
    return normal(out).partition(" is pending: ")[2].partition(" 0 pods placed")[0]


@pytest.mark.parametrize(
    ("page", "example"),
    [
        ("getting-started/first-gang.md", "gang-too-big.yaml"),
        ("concepts/gpu-sharing.md", "share-capped.yaml"),
    ],
)
def test_reasons(
    page: str, example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = reason(simulated([EXAMPLES / example], tmp_path, capsys))
    assert found
    assert found in normal((DOCS / page).read_text())


@pytest.mark.slow
def test_the_demo() -> None:
    """In the README and on the demo's page. It needs 80 columns and leaves no file."""
    command = [sys.executable, "-m", "central", "demo"]
    with tempfile.TemporaryDirectory(prefix="ls-", dir="/tmp") as folder:
        environment = {**os.environ, "TMPDIR": folder, "COLUMNS": "80"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert not list(Path(folder).iterdir())
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    assert re.search(r"GPU0 +X +NV12", shown)
    assert "default/chat: Running: 2 of 2 pods placed in one island" in shown
    assert "default/train: Running: 4 of 4 pods placed on 4 nodes of rack r2" in shown
    assert "default/giant: Pending: needs 4 pods x 8 GPUs in one rack" in shown
    assert "\x1b[" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    blocks = shown.split("\n\n")
    reason = next(block for block in blocks if "default/giant" in block).partition("yaml\n")[2]
    picture = next(block for block in blocks if "┌" in block).partition("\n")[2]
    readme = normal((ROOT / "README.md").read_text())
    assert normal(picture.partition("\nA ")[0]) in readme
    for page in (readme, normal((DOCS / "getting-started/demo.md").read_text())):
        assert normal(reason) in page

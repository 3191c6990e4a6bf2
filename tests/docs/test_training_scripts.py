"""Training scripts of pages and examples do what the page on training says that a script must do."""

import re
import textwrap

import pytest

from tests.architecture.sources import ROOT

FILES = [
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("agent/**/*.md"),
    *ROOT.glob("daemonset/examples/*.yaml"),
]
BLOCK = re.compile(
    r"^```python\n(.*?)^```|^ *- -c\n *- \|\n(.*?)(?=^ {12,14}\w+:)", re.DOTALL | re.MULTILINE
)
LOOP = "for world in job.worlds():"
SCRIPTS = {
    f"{path.relative_to(ROOT)} {number}": textwrap.dedent(found[1] or found[2])
    for path in FILES
    for number, found in enumerate(BLOCK.finditer(path.read_text()))
    if LOOP in found[0]
}


def test_they_are_found() -> None:
    assert {name.partition(" ")[0] for name in SCRIPTS} == {
        str(path.relative_to(ROOT)) for path in FILES if LOOP in path.read_text()
    }


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_turn_is_guarded_and_ends_when_the_ranks_agree(name: str) -> None:
    script = SCRIPTS[name]
    assert "order.steps(world" in script
    assert "world.over(step)" in script
    indent = re.search(
        r"^( *)for world in job.worlds\(\):.*\n\1    with world:", script, re.MULTILINE
    )
    assert indent, "the body is in `with world:`"


@pytest.mark.parametrize(
    "name", [name for name in SCRIPTS if "init_process_group" in SCRIPTS[name]]
)
def test_what_a_script_of_pytorch_does(name: str) -> None:
    script = SCRIPTS[name]
    sharded = "lt.torch.load(job" in script
    assert sharded or {"job.latest()", "order.load(saved.data)"} <= {
        part for part in ("job.latest()", "order.load(saved.data)") if part in script
    }
    assert sharded or "lt.torch.share(model, optimizer, order" in script
    assert sharded or "stop and world.restarts" in script, "it saves when its process ends"
    assert "data=order.state()" in script or "lt.torch.save(job" in script
    assert "dist.destroy_process_group()" in script
    assert "* batch.weight" in script or "..." in script

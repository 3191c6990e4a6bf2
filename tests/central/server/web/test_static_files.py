"""The console makes no HTML of texts: names and sentences of strangers are text nodes, and the page may run its own
files only."""

import re
from pathlib import Path

import pytest

from central.server import web
from central.server.web import web_request

FOLDER = Path(web.__file__).parent / "static"
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|createContextualFragment"
    r"|setAttribute\(\s*[\"'](on|href|src|style)|\.(href|src)\s*="
)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.js")), ids=lambda each: each.name)
def test_a_script_makes_no_html_of_texts(file: Path) -> None:
    found = [line for line in file.read_text().splitlines() if SINKS.search(line)]
    assert not found


def test_the_page_has_no_script_of_its_own() -> None:
    page = (FOLDER / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son[a-z]+=|javascript:", page)


def test_what_the_page_may_run() -> None:
    source = Path(web_request.__file__).read_text()
    assert "default-src 'none'; script-src 'self'" in source
    assert "unsafe" not in source

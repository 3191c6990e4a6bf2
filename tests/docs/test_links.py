"""Links lead somewhere, and every page can be found."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, DOCUMENTS, ROOT, anchors, links


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(document: Path) -> None:
    broken = []
    for link in links(document):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
        elif DOCS in document.parents and DOCS not in target.parents:
            broken.append(f"{link} (not part of the site)")
    assert broken == []


def test_every_page_is_reachable_from_the_index() -> None:
    reached, following = set[Path](), [DOCS / "index.md"]
    while following:
        page = following.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            following += [
                (page.parent / link.partition("#")[0]).resolve()
                for link in links(page)
                if not link.startswith("#")
            ]
    assert set(DOCS.rglob("*.md")) - reached == set()


@pytest.mark.parametrize(
    "folder", ["getting-started", "concepts", "how-to", "reference", "results"]
)
def test_the_index_links_every_page_for_users(folder: str) -> None:
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "index.md")}
    missing = set((DOCS / folder).glob("*.md")) - linked
    assert missing == set(), "add them to docs/index.md"


def test_the_navigation_of_the_site_has_every_page_but_those_of_design() -> None:
    site = tomllib.loads((DOCS / "zensical.toml").read_text())
    named = set(_pages(site["project"]["nav"]))
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    expected = {name for name in there if not name.startswith("design/")} | {"design/README.md"}
    assert named == expected, "change nav in docs/zensical.toml"


def _pages(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for inner in nav.values():
            yield from _pages(inner)
    elif isinstance(nav, list):
        for inner in nav:
            yield from _pages(inner)


def test_every_design_page_has_a_number_of_its_own() -> None:
    numbers = [page.name.partition("-")[0] for page in (DOCS / "design").glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers)), sorted(numbers)


def test_the_readme_is_short() -> None:
    assert len(re.findall(r"\S+", (ROOT / "README.md").read_text())) <= 1000


def test_design_pages_and_code_name_each_other() -> None:
    """A page names its modules (Code: ...), and one of them names the page."""
    nameless = set()
    for page in (DOCS / "design").glob("[0-9]*.md"):
        code = re.search(r"^Code: (.*(?:\n.+)*)", page.read_text(), re.MULTILINE)
        files = [ROOT / name for name in re.findall(r"`([^`]+)`", code[1] if code else "")]
        named = f"docs/design/{page.name}"
        if not any(file.is_file() and named in file.read_text() for file in files):
            nameless.add(page.name)
    assert nameless == set()

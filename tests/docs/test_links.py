"""Links lead somewhere, and every page can be found."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import reference
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


def test_the_readme_is_short() -> None:
    assert len(re.findall(r"\S+", (ROOT / "README.md").read_text())) <= 1000


MOST_WORDS = 60_100  # of all pages that are written by hand; lower it when pages become shorter


def test_the_pages_are_short() -> None:
    """Words have a letter or a digit. Examples of code are left out, and pages that follow from the code."""
    fenced = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
    words = {
        page: len(re.findall(r"\S*\w\S*", fenced.sub("", page.read_text())))
        for page in DOCS.rglob("*.md")
        if page.name not in reference.PAGES
    }
    longest = sorted(words, key=lambda page: -words[page])[:5]
    assert sum(words.values()) <= MOST_WORDS, f"cut, for example in {longest}"


def test_the_changelog_lists_features_and_no_faults_of_unreleased_code() -> None:
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    upgrade, *features = newest.partition("### Before you upgrade\n")[2].split("\n### ")
    assert len(upgrade.split()) <= 600
    assert len(newest.split()) <= 2500
    faults = [line for part in features for line in part.splitlines() if "Before, " in line]
    assert faults == [], "git log has them"


DESIGN = sorted(set((DOCS / "design").glob("*.md")) - {DOCS / "design/README.md"})


@pytest.mark.parametrize("page", DESIGN, ids=lambda path: path.name)
def test_a_design_page_and_its_code_name_each_other(page: Path) -> None:
    """A page names its modules (Code: ...), and one of them names the page."""
    code = re.search(r"^Code: (.*(?:\n.+)*)", page.read_text(), re.MULTILINE)
    files = [ROOT / name for name in re.findall(r"`([^`]+)`", code[1] if code else "")]
    named = f"docs/design/{page.name}"
    assert any(file.is_file() and named in file.read_text() for file in files)


@pytest.mark.parametrize("page", DESIGN, ids=lambda path: path.name)
def test_a_design_page_is_named_by_its_subject_and_has_the_same_parts_as_all(page: Path) -> None:
    assert re.fullmatch(r"[a-z-]+\.md", page.name), "named by subject, without a number"
    parts = re.findall(r"^(?:## .*|Status:|Code:)", page.read_text(), re.MULTILINE)
    expected = ["Status:", "Code:", "## Decision", "## Alternatives", "## Measured"]
    assert [part for part in parts if part != "## Limits"] == expected


SUFFIXES = {".py", ".yaml", ".toml", ".proto", ".js", ".html", ".txt", ".md", ".json", ""}


def test_what_code_says_of_pages_leads_to_pages_that_exist() -> None:
    """In modules, tests, manifests and scripts: docs/FOLDER/PAGE.md, with or without a heading."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [ROOT / name for name in listed.stdout.splitlines()]
    named = [
        (file, page, anchor)
        for file in files
        if file.suffix in SUFFIXES and file.is_file() and file != Path(__file__)
        for page, anchor in re.findall(
            r"\b(docs/[\w./-]+\.md)(?:#([\w-]+))?", file.read_text(errors="ignore")
        )
    ]
    broken = {
        f"{file.relative_to(ROOT)}: {page}"
        for file, page, anchor in named
        if not (ROOT / page).is_file() or (anchor and anchor not in anchors(ROOT / page))
    }
    assert len(named) > 200
    assert broken == set()

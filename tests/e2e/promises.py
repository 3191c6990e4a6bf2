"""The end-to-end tests of make test: those that promises.md names."""

import re
from pathlib import Path

PAGE = Path(__file__).with_suffix(".md")


def names() -> list[str]:
    """Names of test functions, one of each row."""
    return re.findall(r"^\| [^|]+ \| `(test_\w+)` \|$", PAGE.read_text(), re.MULTILINE)

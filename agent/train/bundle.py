"""The package as one file: python -m lockstep_train.bundle FILE.

`python3 FILE -- COMMAND` is lockstep-launch, and with the file in PYTHONPATH `import lockstep_train` works, in
any image with Python 3.9 and without an installation. It is a zip file that Python runs."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

PACKAGE = "lockstep_train"
_MAIN = f"import sys\nfrom {PACKAGE}.launch import main\nsys.exit(main())\n"
_DATE = (1980, 1, 1, 0, 0, 0)  # the same content is the same file


def bundle() -> bytes:
    """The content of the file; the same for the same sources."""
    content = io.BytesIO()
    content.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for file in sorted(Path(__file__).parent.glob("*.py")):
            _add(archive, f"{PACKAGE}/{file.name}", file.read_bytes())
    return content.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python -m {PACKAGE}.bundle FILE")
    Path(sys.argv[1]).write_bytes(bundle())

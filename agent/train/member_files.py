"""The files of a member (plugin elastic with --files): one more way to learn that it leaves, where there is no
coordinator. With one, that is known earlier, and with the step at which all stop."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = "LOCKSTEP_FILES"  # variable
_LEAVING = b"true"


def watched(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the folder; None if it need not be watched."""
    folder = environ.get(FOLDER, "")
    return Path(folder) if folder and not environ.get("LOCKSTEP_COORDINATOR") else None


def leaves(environ: Mapping[str, str] = os.environ) -> bool:
    """Returns whether this member should end by itself before its pod is deleted."""
    folder = watched(environ)
    if folder is None:
        return False
    try:
        with (folder / "leaving").open("rb") as file:
            return file.read(len(_LEAVING) + 1).strip() == _LEAVING
    except OSError:
        return False  # the kubelet replaces them

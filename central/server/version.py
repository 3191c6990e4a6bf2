"""The version of this program."""

from importlib import metadata


def version() -> str:
    try:
        return metadata.version("lockstep-scheduler")
    except metadata.PackageNotFoundError:
        return "not installed"

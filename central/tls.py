"""The centre's own CA and server certificate: issue, renew, keep in files."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Credentials:
    """PEM, all of it. ca_key signs the next certificate."""

    ca: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes


def names(namespace: str) -> tuple[str, ...]:
    """The names that the certificate carries."""
    raise NotImplementedError


def issue(namespace: str, now: datetime) -> Credentials:
    """A new CA, and a certificate signed by it."""
    raise NotImplementedError


def renewed(old: Credentials, namespace: str, now: datetime) -> Credentials:
    """The same where it is good for a third of its life yet; else signed anew by the same CA (a
    new CA where that one ends soon too). Raises Unreadable."""
    raise NotImplementedError


def from_files(folder: Path, namespace: str, now: datetime) -> Credentials:
    """Kept in ca.crt, ca.key, tls.crt, tls.key of the folder. Raises Unreadable (one sentence)."""
    raise NotImplementedError

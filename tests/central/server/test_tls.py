"""The scheduler's certificate in files."""

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from central.server import tls

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def test_the_certificate_carries_our_names_and_no_more() -> None:
    made = tls.issue("ns", NOW)
    certificate = x509.load_pem_x509_certificate(made.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in names} == {
        "lockstep-central",
        "lockstep-central.ns",
        "lockstep-central.ns.svc",
        "localhost",
        "127.0.0.1",
    }
    authority = x509.load_pem_x509_certificate(made.ca)
    certificate.verify_directly_issued_by(authority)
    assert (certificate.not_valid_after_utc - NOW).days == 90
    assert (authority.not_valid_after_utc - NOW).days == 3650


def test_files_are_written_once_and_keys_are_private(tmp_path: Path) -> None:
    folder, before = tmp_path / "tls", os.umask(0o022)
    try:
        first = tls.from_files(folder, "ns", NOW)
    finally:
        os.umask(before)
    assert tls.from_files(folder, "ns", NOW) == first
    assert {file.name: stat.S_IMODE(file.stat().st_mode) & 0o077 for file in folder.iterdir()} == {
        "ca.crt": 0o044,
        "tls.crt": 0o044,
        "ca.key": 0,
        "tls.key": 0,
    }


@pytest.mark.parametrize(
    ("days", "renewed"), [(0, False), (59, False), (61, True), (89, True), (200, True)]
)
def test_renewed_when_a_third_of_its_life_is_left(tmp_path: Path, days: int, renewed: bool) -> None:
    first = tls.from_files(tmp_path, "ns", NOW)
    later = tls.from_files(tmp_path, "ns", NOW + timedelta(days=days))
    assert later.ca == first.ca
    assert (later.certificate != first.certificate) == renewed


def test_another_namespace_needs_another_certificate(tmp_path: Path) -> None:
    first = tls.from_files(tmp_path, "ns", NOW)
    other = tls.from_files(tmp_path, "other", NOW)
    assert first.ca == other.ca
    assert first.certificate != other.certificate


def test_a_ca_that_expires_soon_is_replaced(tmp_path: Path) -> None:
    first = tls.from_files(tmp_path, "ns", NOW)
    assert tls.from_files(tmp_path, "ns", NOW + timedelta(days=3600)).ca != first.ca


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_unusable_files_are_named(tmp_path: Path, name: str) -> None:
    tls.from_files(tmp_path, "ns", NOW)
    other = tls.issue("ns", NOW)
    foreign = {
        "ca.crt": other.ca,
        "ca.key": other.ca_key,
        "tls.crt": other.certificate,
        "tls.key": other.key,
    }
    (tmp_path / name).write_bytes(foreign[name])
    with pytest.raises(tls.UnusableCredentials, match="remove its files to issue new ones"):
        tls.from_files(tmp_path, "ns", NOW)
    (tmp_path / name).write_text("nonsense")
    with pytest.raises(tls.UnusableCredentials, match=f"--tls-dir {tmp_path}: "):
        tls.from_files(tmp_path, "ns", NOW)
    (tmp_path / name).unlink()
    with pytest.raises(tls.UnusableCredentials, match=f"{name} missing"):
        tls.from_files(tmp_path, "ns", NOW)


def test_an_unusable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(tls.UnusableCredentials, match="--tls-dir"):
        tls.from_files(tmp_path / "file" / "tls", "ns", NOW)

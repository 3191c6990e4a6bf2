"""The centre's own CA and server certificate: issue, renew, keep in files.

The CA lives ten years, the certificate ninety days: whatever starts the centre renews it, agents only
know the CA.
"""

import ipaddress
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE = timedelta(days=3650)
LIFE = timedelta(days=90)
LEAST = 1 / 3  # of its life that a certificate must have left
_SKEW = timedelta(hours=1)  # agents whose clocks are behind

CA_FILE, CA_KEY_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.crt", "ca.key", "tls.crt", "tls.key"


class UnusableCredentials(Exception):
    """What is kept can't be used: a sentence for the user, exit 2."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """PEM, all of it. ca_key signs the next certificate."""

    ca: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes


def names(namespace: str) -> tuple[str, ...]:
    """The names that the certificate carries."""
    service = "lockstep-central"
    return (
        service,
        f"{service}.{namespace}",
        f"{service}.{namespace}.svc",
        "localhost",
        "127.0.0.1",
    )


def issue(namespace: str, now: datetime) -> Credentials:
    """A new CA, and a certificate signed by it. now has a time zone."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lockstep-ca")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    public = ca_key.public_key()
    ca = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return _signed(_pem(ca), _pem_key(ca_key), namespace, now)


def renewed(old: Credentials, namespace: str, now: datetime) -> Credentials:
    """The same where it is good for a third of its life yet and carries our names; else signed anew
    by the same CA, or by a new one where that ends before the certificate would. Raises UnusableCredentials."""
    try:
        ca = x509.load_pem_x509_certificate(old.ca)
        certificate = x509.load_pem_x509_certificate(old.certificate)
        key = serialization.load_pem_private_key(old.key, None)
        ca_key = serialization.load_pem_private_key(old.ca_key, None)
        certificate.verify_directly_issued_by(ca)
        carried = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception as error:  # the library raises its own and others; all mean this
        raise UnusableCredentials(
            f"it does not hold a certificate: {str(error) or type(error).__name__}"
        ) from error
    if certificate.public_key() != key.public_key() or ca.public_key() != ca_key.public_key():
        raise UnusableCredentials("a key does not fit its certificate")
    if ca.not_valid_after_utc - now < LIFE:
        return issue(namespace, now)
    left = certificate.not_valid_after_utc - now
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    if left >= life * LEAST and set(carried) >= set(_alternatives(namespace)):
        return old
    return _signed(old.ca, old.ca_key, namespace, now)


def from_files(folder: Path, namespace: str, now: datetime) -> Credentials:
    """Kept in ca.crt, ca.key, tls.crt, tls.key of the folder. Raises UnusableCredentials."""
    files = [folder / name for name in (CA_FILE, CA_KEY_FILE, CERTIFICATE_FILE, KEY_FILE)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = [file.read_bytes() for file in files if file.exists()]
    except OSError as error:
        raise UnusableCredentials(f"--tls-dir {folder}: {error.strerror}") from error
    if there and len(there) < len(files):
        missing = ", ".join(file.name for file in files if not file.exists())
        raise UnusableCredentials(f"--tls-dir {folder}: {missing} missing beside the other files")
    try:
        old = Credentials(*there) if there else None
        new = renewed(old, namespace, now) if old else issue(namespace, now)
    except UnusableCredentials as error:
        raise UnusableCredentials(
            f"--tls-dir {folder}: {error}; remove its files to start anew"
        ) from error
    if new != old:
        try:
            for file, content in zip(
                files, (new.ca, new.ca_key, new.certificate, new.key), strict=True
            ):
                _write(file, content, 0o600 if file.suffix == ".key" else 0o644)
        except OSError as error:
            raise UnusableCredentials(f"--tls-dir {folder}: {error.strerror}") from error
    return new


def _signed(ca_pem: bytes, ca_key_pem: bytes, namespace: str, now: datetime) -> Credentials:
    ca = x509.load_pem_x509_certificate(ca_pem)
    ca_key = serialization.load_pem_private_key(ca_key_pem, None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise UnusableCredentials("the CA's key is not an elliptic curve's")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lockstep-central")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(_alternatives(namespace)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    return Credentials(ca_pem, ca_key_pem, _pem(certificate), _pem_key(key))


def _alternatives(namespace: str) -> list[x509.GeneralName]:
    *hosts, address = names(namespace)
    return [
        *(x509.DNSName(host) for host in hosts),
        x509.IPAddress(ipaddress.ip_address(address)),
    ]


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(file: Path, content: bytes, mode: int) -> None:
    """Whole or not at all, and never readable for longer than it should be."""
    beside = file.with_name(f".{file.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
    beside.rename(file)

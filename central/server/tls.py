"""The scheduler's own CA and server certificate: issued, renewed, and kept in files. The CA is valid for ten
years and the certificate for 90 days. Agents and users trust the CA, so a renewal does not affect them."""

import ipaddress
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFETIME = timedelta(days=3650)
LIFETIME = timedelta(days=90)
RENEW_BELOW = 1 / 3  # of the lifetime left
_SKEW = timedelta(hours=1)  # backdates certificates for agents whose clocks are behind

CA_FILE, CA_KEY_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.crt", "ca.key", "tls.crt", "tls.key"


class UnusableCredentials(Exception):
    """The stored certificate can't be used: a sentence for the user, exit code 2."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """All in PEM. ca_key signs the next certificate."""

    ca: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes


def names(namespace: str) -> tuple[str, ...]:
    """The certificate's DNS names, and its IP address last."""
    service = "lockstep-central"
    return (
        service,
        f"{service}.{namespace}",
        f"{service}.{namespace}.svc",
        "localhost",
        "127.0.0.1",
    )


def issue(namespace: str, now: datetime) -> Credentials:
    """A new CA and a certificate that it signed. now must have a time zone."""
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
        .not_valid_after(now + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return _signed(_pem(ca), _pem_key(ca_key), namespace, now)


def renewed(old: Credentials, namespace: str, now: datetime) -> Credentials:
    """The same credentials if the certificate has a third of its lifetime left and carries our names.
    Else a new certificate of the same CA, or of a new CA if the old one would expire before the
    certificate. Raises UnusableCredentials."""
    try:
        ca = x509.load_pem_x509_certificate(old.ca)
        certificate = x509.load_pem_x509_certificate(old.certificate)
        key = serialization.load_pem_private_key(old.key, None)
        ca_key = serialization.load_pem_private_key(old.ca_key, None)
        certificate.verify_directly_issued_by(ca)
        carried = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception as error:  # the library raises several kinds, which all mean this
        raise UnusableCredentials(
            f"no valid certificate: {str(error) or type(error).__name__}"
        ) from error
    if certificate.public_key() != key.public_key() or ca.public_key() != ca_key.public_key():
        raise UnusableCredentials("a private key does not match its certificate")
    if ca.not_valid_after_utc - now < LIFETIME:
        return issue(namespace, now)
    left = certificate.not_valid_after_utc - now
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    if left >= lifetime * RENEW_BELOW and set(carried) >= set(_alternatives(namespace)):
        return old
    return _signed(old.ca, old.ca_key, namespace, now)


def server_context(current: Callable[[], Credentials]) -> ssl.SSLContext:
    """TLS of a server. A connection gets the certificate that is current when it begins."""
    known = current()
    context = served = _server_context(known)

    def choose(connection: ssl.SSLObject | ssl.SSLSocket, *_: object) -> None:
        nonlocal known, served
        if (now := current()) != known:
            known, served = now, _server_context(now)
        connection.context = served

    context.sni_callback = choose
    return context


def _server_context(credentials: Credentials) -> ssl.SSLContext:
    """Through a file in memory, because ssl reads only files and the container's file system is read-only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with os.fdopen(os.memfd_create("tls"), "wb", buffering=0) as file:
        file.write(credentials.certificate + credentials.key)
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context


def from_files(folder: Path, namespace: str, now: datetime) -> Credentials:
    """Reads, issues or renews ca.crt, ca.key, tls.crt and tls.key in the directory. Raises
    UnusableCredentials."""
    files = [folder / name for name in (CA_FILE, CA_KEY_FILE, CERTIFICATE_FILE, KEY_FILE)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        contents = [file.read_bytes() for file in files if file.exists()]
    except OSError as error:
        raise UnusableCredentials(f"--tls-dir {folder}: {error.strerror}") from error
    if contents and len(contents) < len(files):
        missing = ", ".join(file.name for file in files if not file.exists())
        raise UnusableCredentials(
            f"--tls-dir {folder}: {missing} missing, though the other files exist"
        )
    try:
        old = Credentials(*contents) if contents else None
        new = renewed(old, namespace, now) if old else issue(namespace, now)
    except UnusableCredentials as error:
        raise UnusableCredentials(
            f"--tls-dir {folder}: {error}; remove its files to issue new ones"
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
        raise UnusableCredentials("the CA's key is not an elliptic-curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lockstep-central")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + LIFETIME)
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
    return [*(x509.DNSName(host) for host in hosts), x509.IPAddress(ipaddress.ip_address(address))]


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(file: Path, content: bytes, mode: int) -> None:
    """Atomically, and with the final permissions from the beginning."""
    beside = file.with_name(f".{file.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
    beside.rename(file)

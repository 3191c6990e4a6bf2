"""The credentials of an elastic Job's coordinator as the data of a Secret: a token, and a certificate of its own."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = timedelta(days=3650)  # longer than any Job: it cannot be renewed under running members
_SKEW = timedelta(hours=1)  # for members whose clocks are behind
_COMMON_NAME = 64  # longest by X.520


def generate(names: Sequence[str]) -> dict[str, str]:
    """The certificate signs itself and is also what members trust. Its key never leaves the Secret."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:_COMMON_NAME])])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    certificate = made.public_bytes(serialization.Encoding.PEM).decode()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "token": secrets.token_urlsafe(32),
        "ca.crt": certificate,
        "tls.crt": certificate,
        "tls.key": private.decode(),
    }

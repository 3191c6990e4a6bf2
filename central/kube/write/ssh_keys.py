"""A fresh pair of SSH keys, as the data of a Secret."""

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

BITS = 2048


def generate_key_pair() -> dict[str, str]:
    """RSA in the oldest format: every sshd that an image may hold reads it."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=BITS)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    return {
        "id_rsa": private.decode(),
        "id_rsa.pub": public.decode(),
        "authorized_keys": public.decode(),
    }

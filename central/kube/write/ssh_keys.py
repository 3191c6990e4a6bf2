"""SSH keys as the data of a Secret."""

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

BITS = 2048


def generate_key_pair() -> dict[str, str]:
    """A new RSA key pair in PEM, the format that every version of sshd reads."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=BITS)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    return {
        "id_rsa": private.decode(),
        "id_rsa.pub": public.decode(),
        "authorized_keys": public.decode(),
    }

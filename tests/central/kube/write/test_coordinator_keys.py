"""The credentials of a coordinator."""

import ssl
from pathlib import Path

from central.kube.write import coordinator_keys


def test_members_trust_the_certificate_under_its_names(tmp_path: Path) -> None:
    made = coordinator_keys.generate(("c.train", "c.train.team"))
    assert len(made["token"]) >= 32
    assert made["token"] != coordinator_keys.generate(("c.train",))["token"]
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_text(made[name])
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    trusting = ssl.create_default_context(cadata=made["ca.crt"])
    assert handshake(serving, trusting, "c.train.team") == ""
    assert "Hostname mismatch" in handshake(serving, trusting, "other")


def handshake(serving: ssl.SSLContext, trusting: ssl.SSLContext, name: str) -> str:
    """What the client refuses; empty: nothing."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    done: set[int] = set()
    for _ in range(10):
        for side in (client, server):
            try:
                side.do_handshake()
                done.add(id(side))
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                return str(error)
    assert len(done) == 2
    return ""

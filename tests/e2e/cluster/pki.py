"""The cluster's certificates and kubeconfigs, made with openssl."""

import base64
import json
from pathlib import Path

from tests.e2e.cluster.settings import API_SERVER, NAME, run


class Pki:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, mode=0o700)
        for ca in ("ca", "front-proxy-ca"):
            self._openssl(
                ca,
                f"/CN=k8s-e2e-{ca}",
                "basicConstraints=critical,CA:TRUE",
                "keyUsage=critical,keyCertSign,cRLSign",
            )
        run(
            *("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"),
            *("-out", directory / "service-account.key"),
        )

    def _openssl(self, name: str, subject: str, *extensions: str, ca: str = "") -> None:
        run(
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-noenc", "-days", "3650"),
            *("-keyout", self.key(name), "-out", self.crt(name), "-subj", subject),
            *(["-CA", self.crt(ca), "-CAkey", self.key(ca)] if ca else []),
            *(part for extension in extensions for part in ("-addext", extension)),
        )

    def crt(self, name: str) -> Path:
        return self.directory / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.directory / f"{name}.key"

    def issue(
        self, name: str, user: str, group: str = "", *, names: tuple[str, ...] = (), ca: str = "ca"
    ) -> None:
        """A certificate: for a client, and for a server too where names are given."""
        usage = "extendedKeyUsage=clientAuth"
        alternatives = []
        if names:
            usage += ",serverAuth"
            listed = ",".join(f"{'IP' if n[0].isdigit() else 'DNS'}:{n}" for n in names)
            alternatives = [f"subjectAltName={listed}"]
        self._openssl(
            name,
            (f"/O={group}" if group else "") + f"/CN={user}",
            "basicConstraints=critical,CA:FALSE",
            "keyUsage=critical,digitalSignature",
            usage,
            *alternatives,
            ca=ca,
        )

    def kubeconfig(self, name: str) -> Path:
        """A kubeconfig (in JSON, which is YAML) that holds its certificates."""

        def data(path: Path) -> str:
            return base64.b64encode(path.read_bytes()).decode()

        cluster = {"server": API_SERVER, "certificate-authority-data": data(self.crt("ca"))}
        user = {
            "client-certificate-data": data(self.crt(name)),
            "client-key-data": data(self.key(name)),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": NAME,
            "clusters": [{"name": NAME, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": name}}],
        }
        path = self.directory / f"{name}.kubeconfig"
        path.write_text(json.dumps(content, indent=1))
        path.chmod(0o600)
        return path

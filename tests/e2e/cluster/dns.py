"""A cluster DNS server in one file: what CoreDNS would answer for Services.

    dns.py ADDRESS CA CERT KEY DOMAIN

Watches Services and Endpoints at https://ADDRESS:6443 and answers, on port 53 of that address
(UDP and TCP): A for name.namespace.svc.DOMAIN (a Service's address, or each ready address behind
a headless one), for pod.name.namespace.svc.DOMAIN (one pod behind a headless Service) and for
1-2-3-4.namespace.pod.DOMAIN; SRV for _port._protocol.name.namespace.svc.DOMAIN; CNAME for a
Service of type ExternalName; PTR for the addresses above. Any other name does not exist."""

import contextlib
import http.client
import ipaddress
import json
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

A, CNAME, SOA, PTR, SRV, OPT = 1, 5, 6, 12, 33, 41
TTL = 5
Record = tuple[str, int, Any]  # owner, type, value


class Watch(threading.Thread):
    """Keeps `items` (namespace/name: object) like what the API server has."""

    def __init__(
        self, address: str, context: ssl.SSLContext, resource: str, changed: Callable[[], None]
    ) -> None:
        super().__init__(daemon=True)
        self.address, self.context = address, context
        self.path, self.changed = f"/api/v1/{resource}", changed
        self.items: dict[str, Any] = {}

    def get(self, query: str = "") -> http.client.HTTPResponse:
        connection = http.client.HTTPSConnection(
            self.address, 6443, context=self.context, timeout=90
        )
        connection.request("GET", self.path + query)
        response = connection.getresponse()
        if response.status != 200:
            raise OSError(f"{self.path}: {response.status}")
        return response

    @staticmethod
    def key(item: dict[str, Any]) -> str:
        return f"{item['metadata']['namespace']}/{item['metadata']['name']}"

    def run(self) -> None:
        while True:
            try:
                self.follow()
            except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
                print(f"{self.path}: {error!r}; again in a second", file=sys.stderr, flush=True)
                time.sleep(1)

    def follow(self) -> None:
        listing = json.load(self.get())
        self.items = {self.key(item): item for item in listing["items"]}
        self.changed()
        version = listing["metadata"]["resourceVersion"]
        query = f"?watch=1&allowWatchBookmarks=1&timeoutSeconds=60&resourceVersion={version}"
        for line in self.get(query):
            event = json.loads(line)
            if event["type"] == "ERROR":
                return
            if event["type"] == "DELETED":
                self.items.pop(self.key(event["object"]), None)
            elif event["type"] != "BOOKMARK":
                self.items[self.key(event["object"])] = event["object"]
            self.changed()


class Records:
    """(name, type) to a list of values."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.values: dict[tuple[str, int], list[Any]] = {}

    def add(self, name: str, kind: int, value: Any) -> None:
        values = self.values.setdefault((name.lower(), kind), [])
        if value not in values:
            values.append(value)

    def address(self, name: str, address: str) -> None:
        self.add(name, A, address)
        self.add(ipaddress.ip_address(address).reverse_pointer, PTR, name)

    def ports(self, ports: Iterable[dict[str, Any]], base: str, host: str) -> None:
        for port in ports:
            name = f"_{port.get('name', '')}._{port['protocol']}.{base}"
            self.add(name, SRV, (port["port"], host))

    def service(self, key: str, service: dict[str, Any], subsets: list[dict[str, Any]]) -> None:
        namespace, name = key.split("/")
        base, spec = f"{name}.{namespace}.svc.{self.domain}", service["spec"]
        if spec.get("type") == "ExternalName":
            self.add(base, CNAME, spec["externalName"].rstrip("."))
        elif spec.get("clusterIP", "None") != "None":
            self.address(base, spec["clusterIP"])
            self.ports(spec.get("ports", []), base, base)
        else:
            for subset in subsets:
                self.headless(base, subset, bool(spec.get("publishNotReadyAddresses")))

    def headless(self, base: str, subset: dict[str, Any], everyone: bool) -> None:
        entries = list(subset.get("addresses", []))
        if everyone:
            entries += subset.get("notReadyAddresses", [])
        for entry in entries:
            host = f"{entry.get('hostname') or entry['ip'].replace('.', '-')}.{base}"
            self.add(base, A, entry["ip"])
            self.address(host, entry["ip"])
            self.ports(subset.get("ports", []), base, host)


class Zone:
    def __init__(self, address: str, ca: str, cert: str, key: str, domain: str) -> None:
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(cert, key)
        self.domain = domain
        self.records: dict[tuple[str, int], list[Any]] = {}
        self.names: set[str] = set()
        self.lock = threading.Lock()
        self.services = Watch(address, context, "services", self.rebuild)
        self.endpoints = Watch(address, context, "endpoints", self.rebuild)

    def start(self) -> None:
        self.services.start()
        self.endpoints.start()

    def rebuild(self) -> None:
        with self.lock:
            records = Records(self.domain)
            for key, service in list(self.services.items.items()):
                found = self.endpoints.items.get(key, {}).get("subsets") or []
                records.service(key, service, found)
            self.records = records.values
            self.names = {name for name, _ in self.records}

    def find(self, name: str, kind: int) -> tuple[bool, list[Record]]:
        """Whether the name exists, and what there is of this type."""
        name = name.lower()
        parts = name.removesuffix(f".{self.domain}").split(".")
        if len(parts) == 3 and parts[2] == "pod" and name.endswith(self.domain):
            with contextlib.suppress(ValueError):
                address = str(ipaddress.IPv4Address(parts[0].replace("-", ".")))
                return True, [(name, A, address)] if kind == A else []
            return False, []
        found: list[Record] = [(name, kind, v) for v in self.records.get((name, kind), [])]
        if not found and kind != CNAME:
            for target in self.records.get((name, CNAME), []):
                found = [(name, CNAME, target), *self.find(target, kind)[1]]
        above = any(known.endswith(f".{name}") for known in self.names)
        return name in self.names or above, found

    def answer(self, query: bytes, size: int) -> bytes:
        ident, flags, _, _, _, additional = struct.unpack("!6H", query[:12])
        name, at = read_name(query, 12)
        kind, _ = struct.unpack("!2H", query[at : at + 4])
        question, at = query[12 : at + 4], at + 4
        extended = b""
        if additional and query[at : at + 1] == b"\0":  # EDNS: how long an answer may be
            option, theirs = struct.unpack("!2H", query[at + 1 : at + 5])
            if option == OPT:
                size = max(size, min(theirs, 4096))
                extended = b"\0" + struct.pack("!2HIH", OPT, 4096, 0, 0)
        exists, found = self.find(name, kind)
        body = b"".join(write_record(*record) for record in found)
        authority = b"" if found else self.authority()
        cut = 12 + len(question) + len(body) + len(authority) + len(extended) > size
        status = 0x8480 | (flags & 0x0100) | (0x0200 if cut else 0)
        head = struct.pack(
            "!6H",
            ident,
            status | (0 if exists or found else 3),
            1,
            0 if cut else len(found),
            0 if cut or found else 1,
            1 if extended else 0,
        )
        return head + question + (b"" if cut else body + authority) + extended

    def authority(self) -> bytes:
        servers = write_name(f"ns.dns.{self.domain}") + write_name(f"root.{self.domain}")
        data = servers + struct.pack("!5I", int(time.time()), 7200, 1800, 86400, TTL)
        return write_name(self.domain) + struct.pack("!2HIH", SOA, 1, TTL, len(data)) + data


def read_name(packet: bytes, at: int) -> tuple[str, int]:
    labels = []
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode("ascii", "replace"))
        at += 1 + packet[at]
    return ".".join(labels), at + 1


def write_name(name: str) -> bytes:
    labels = [label.encode() for label in name.split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def write_record(owner: str, kind: int, value: Any) -> bytes:
    if kind == A:
        data = socket.inet_aton(value)
    elif kind == SRV:
        data = struct.pack("!3H", 0, 100, value[0]) + write_name(value[1])
    else:
        data = write_name(value)
    return write_name(owner) + struct.pack("!2HIH", kind, 1, TTL, len(data)) + data


def main(address: str, ca: str, cert: str, key: str, domain: str) -> None:
    zone = Zone(address, ca, cert, key, domain)

    class Udp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            packet, sock = self.request
            sock.sendto(zone.answer(packet, 512), self.client_address)

    class Tcp(socketserver.StreamRequestHandler):
        timeout = 10

        def handle(self) -> None:
            while len(length := self.rfile.read(2)) == 2:
                answer = zone.answer(self.rfile.read(struct.unpack("!H", length)[0]), 65535)
                self.wfile.write(struct.pack("!H", len(answer)) + answer)

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    tcp = socketserver.ThreadingTCPServer((address, 53), Tcp)
    tcp.daemon_threads = True
    threading.Thread(target=tcp.serve_forever, daemon=True).start()
    zone.start()
    socketserver.UDPServer((address, 53), Udp).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:6])

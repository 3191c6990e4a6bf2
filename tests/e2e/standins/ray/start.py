"""In place of `ray start`: a head that counts who joins, and workers that join and stay."""

import argparse
import socket
import threading
import time

from meet import reach

parser = argparse.ArgumentParser()
parser.add_argument("start", choices=["start"])
for flag in ("--head", "--block"):
    parser.add_argument(flag, action="store_true", required=flag == "--block")
parser.add_argument("--address")
parser.add_argument("--port", type=int)
parser.add_argument("--ray-client-server-port", type=int)
for flag in ("--dashboard-host", "--dashboard-port"):
    parser.add_argument(flag)
asked = parser.parse_args()
nodes = 1.0


def answer(port: int) -> None:
    """Adds what it is sent, and answers how many there are."""
    global nodes  # noqa: PLW0603  # one count for both ports
    server = socket.create_server(("", port))
    while True:
        peer, _ = server.accept()
        with peer:
            nodes += float(peer.makefile().readline() or 0)
            peer.sendall(f"{nodes}\n".encode())


if asked.head:
    threading.Thread(target=answer, args=(asked.ray_client_server_port,)).start()
    answer(asked.port)
host, _, port = asked.address.rpartition(":")
print("joined:", reach(host, int(port), 1), flush=True)
time.sleep(3600)

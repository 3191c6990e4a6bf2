"""How the stand-ins talk: one listens, the others send a number and are answered with a number."""

import socket
import time


def reach(host: str, port: int, number: float, seconds: float = 60) -> float:
    """What a server that may have to start first answers."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection((host, port), timeout=30) as peer:
                peer.sendall(f"{number}\n".encode())
                return float(peer.makefile().readline())
        except (OSError, ValueError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def serve(port: int) -> None:
    """A parameter server: it adds what it is sent and answers the sum, for ever."""
    server = socket.create_server(("", port))
    total = 0.0
    while True:
        peer, _ = server.accept()
        with peer:
            total += float(peer.makefile().readline() or 0)
            peer.sendall(f"{total}\n".encode())

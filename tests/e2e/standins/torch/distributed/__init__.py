"""One reduction over all ranks, by way of rank 0, who is found as PyTorch finds it."""

import os
import socket

from meet import reach


def init_process_group(backend: str) -> None:
    assert backend == "gloo"


def get_rank() -> int:
    return int(os.environ["RANK"])


def get_world_size() -> int:
    return int(os.environ["WORLD_SIZE"])


def all_reduce(vector) -> None:  # type: ignore[no-untyped-def]  # a torch.ones
    port = int(os.environ["MASTER_PORT"])
    if get_rank():
        vector.value = reach(os.environ["MASTER_ADDR"], port, vector.value)
        return
    peers = []
    server = socket.create_server(("", port))
    for _ in range(get_world_size() - 1):
        peer, _ = server.accept()
        vector.value += float(peer.makefile().readline())
        peers.append(peer)
    for peer in peers:
        peer.sendall(f"{vector.value}\n".encode())
        peer.close()


def destroy_process_group() -> None:
    pass

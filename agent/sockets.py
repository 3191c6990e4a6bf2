"""Constants and helpers for the gRPC sockets of the kubelet and the scheduler."""

import socket
from pathlib import Path

import grpc

PATH_BYTES = 107  # longest path of a unix socket, without the closing zero
MESSAGE_BYTES = 64 << 20  # lists of nodes with many pods exceed gRPC's default of 4 MiB
CHANNEL = (
    # The kubelet's server rejects the authority that gRPC derives from the socket's path.
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # connect at once to a restarted kubelet
)

Identity = tuple[int, int, int] | None


def details(error: Exception) -> str:
    return str(error.details() if isinstance(error, grpc.Call) else error)


def identity(path: Path) -> Identity:
    """Identifies the file. Includes the modification time because inode numbers are reused."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def refuses(path: Path) -> bool:
    """Returns whether the process that listened on the socket has ended."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except OSError as error:  # of a full queue, for one
            return isinstance(error, ConnectionRefusedError)
    return False

"""What the kubelet's two sockets, and every gRPC peer, have in common."""

import grpc

PATH_BYTES = 107  # of a unix socket's path, without the closing zero
MESSAGE_BYTES = 64 << 20  # a node with many pods has more to list than the usual 4 MiB
CHANNEL = (
    # What Python makes of a socket's path as authority is refused by the kubelet's server.
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # a new kubelet is dialled at once
)


def details(error: Exception) -> str:
    return str(error.details() if isinstance(error, grpc.Call) else error)

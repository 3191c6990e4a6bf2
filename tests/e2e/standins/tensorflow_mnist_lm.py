"""In place of a Horovod program: each rank says who it is."""

import os
import socket

rank, size = (os.environ[f"OMPI_COMM_WORLD_{word}"] for word in ("RANK", "SIZE"))
print(f"rank {rank} of {size} on {socket.gethostname()}")

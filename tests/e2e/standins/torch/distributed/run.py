"""torchrun --no-python COMMAND, by its variables: one process for each GPU."""

import os
import subprocess
import sys


def main(command: list[str]) -> int:
    here = int(os.environ["PET_NPROC_PER_NODE"])
    first = int(os.environ["PET_NODE_RANK"]) * here
    world = {
        "WORLD_SIZE": str(int(os.environ["PET_NNODES"]) * here),
        "MASTER_ADDR": os.environ["PET_MASTER_ADDR"],
        "MASTER_PORT": os.environ["PET_MASTER_PORT"],
    }
    processes = [
        subprocess.Popen(
            command, env={**os.environ, **world, "RANK": str(first + i), "LOCAL_RANK": str(i)}
        )
        for i in range(here)
    ]
    return max(process.wait() for process in processes)


if __name__ == "__main__":
    assert sys.argv[1] == "--no-python"
    sys.exit(main(sys.argv[2:]))

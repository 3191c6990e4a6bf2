"""The IMEX channel that containers get for NVLink between machines."""

from dataclasses import replace
from pathlib import Path

from agent.bounded_files import exists
from protos.topology import NodeTopology

FOLDER = "nvidia-caps-imex-channels"


def channel_file(channel: int) -> str:
    """Below /dev."""
    return f"{FOLDER}/channel{channel}"


def checked(topology: NodeTopology, channel: int, dev_root: Path) -> NodeTopology:
    """The topology, without the GPUs' cliques if their fabric has other machines and the channel's file is missing:
    containers then have no NVLink to these machines. channel: -1 if none is asked for."""
    wanted = channel >= 0 and any(gpu.clique for gpu in topology.gpus)
    if not wanted or exists(dev_root / channel_file(channel)):
        return topology
    gpus = tuple(replace(gpu, clique="") for gpu in topology.gpus)
    why = f"/dev/{channel_file(channel)} is missing (--imex-channel); check nvidia-imex"
    return replace(topology, gpus=gpus, imex_why=why)

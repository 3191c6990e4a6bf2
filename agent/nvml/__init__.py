"""NVML through the vendor's own Python binding: the only folder that imports pynvml."""

from agent.nvml.events import Events
from agent.nvml.library import NvmlError
from agent.nvml.reader import read

__all__ = ["Events", "NvmlError", "read"]

"""NVML through the vendor's own Python binding: the only folder that imports pynvml."""

from agent.nvml.events import Events
from agent.nvml.facts import read
from agent.nvml.library import NvmlError

__all__ = ["Events", "NvmlError", "read"]

"""NVML through NVIDIA's Python binding. Only this folder imports pynvml."""

from agent.nvml.events import EventListener
from agent.nvml.library import NoDriver, NvmlError
from agent.nvml.reader import read

__all__ = ["EventListener", "NoDriver", "NvmlError", "read"]

"""A machine's hardware: raw facts from sysfs and the host (agent/nvml reads those of NVML), and the
pure functions that derive the topology from them. A capture is one machine's facts as a JSON file.
"""

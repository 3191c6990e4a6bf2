"""What both programs share besides the wire: logging, output that nobody takes, and /metrics and probes over
HTTP."""

"""What both programs share besides the wire: their logging set-up, and /metrics and probes over
HTTP."""

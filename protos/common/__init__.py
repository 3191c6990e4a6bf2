"""Code of both programs besides the wire: logging, output that cannot be written, and /metrics and probes over HTTP."""

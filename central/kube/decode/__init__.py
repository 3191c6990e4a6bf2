"""Raw Kubernetes JSON as facts. Pure."""

"""Raw Kubernetes JSON -> facts. Pure."""

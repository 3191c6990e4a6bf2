"""Which nodes a pod may use at all: Kubernetes' own filters, for all nodes and a kind of pod at once."""

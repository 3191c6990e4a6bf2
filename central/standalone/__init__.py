"""A control plane in a box: an in-memory Kubernetes API (the part that is used) and hollow kubelets
that speak the real device-plugin protocol; for the demo, the tests and scale runs."""

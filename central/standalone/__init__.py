"""A local cluster for the demo, the tests and scale runs: an in-memory Kubernetes API (the part that is used) and
hollow kubelets that speak the real device-plugin protocol. The scheduler's
image does not contain it. Design: docs/design/simulation.md."""

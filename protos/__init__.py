"""The agreements of agent, scheduler and kubelet: the wire (.proto, stubs, wire.py), the topology of a node
(topology.py), the choices that agent and scheduler must make alike (closest.py, nearest.py, gpu_sharing.py), and
Kubernetes names (names.py). Imports neither agent nor central.

Design: docs/design/installation.md
"""

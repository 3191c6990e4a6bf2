"""The agent as a driver of resource claims (DRA): GPUs and MIG slices that pods get by claim.

Design: docs/design/kubelet.md
"""

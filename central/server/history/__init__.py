"""The cluster's past, on disk: allocations of GPUs for accounting, and pictures of the cluster for the console.

Design: docs/design/observability.md
"""

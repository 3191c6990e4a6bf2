"""What the cluster was like, on disk: allocations of GPUs for accounting, and pictures of the cluster for the console.

Design: docs/design/observability.md
"""

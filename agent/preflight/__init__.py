"""Checks idle GPUs before a gang starts on them: NVLinks, NICs, and copies between GPUs.

Design: docs/design/gpu-health.md
"""

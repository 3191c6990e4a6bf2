"""Checks idle GPUs before a gang starts on them: NVLinks, NICs, and copies between GPUs.

Design: docs/design/0072-preflight.md
"""

"""A trace for each gang (created, admitted, placed, bound, running), sent to an OpenTelemetry collector.

Design: docs/design/observability.md
"""

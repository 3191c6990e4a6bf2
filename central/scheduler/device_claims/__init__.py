"""Device claims: which devices drivers publish, which of them a pod's claims select, and which they get.

Design: docs/design/device-claims.md
"""

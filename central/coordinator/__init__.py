"""`lockstep coordinate`: serves central.controllers.training, the coordinator of one elastic Job, over HTTP, and
stores its state.

Interface: docs/reference/coordinator-http.md. Design: docs/design/coordinator.md
"""

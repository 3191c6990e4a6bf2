"""The core of the coordinator of an elastic Job: which processes are one generation (membership), which task belongs
to whom (tasks), which checkpoint is complete (checkpoints). Pure: facts and the time are arguments, answers are
returned; central.coordinator serves it over HTTP and stores it.

Design: docs/design/coordinator.md
"""

"""Sizes of elastic gangs: how many members each has, which leave when other gangs need the capacity, and when a change
is worth what it costs.

Design: docs/design/elastic-sizes.md
"""

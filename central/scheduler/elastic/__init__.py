"""Sizes of elastic gangs: how many members each has, who leaves when others need the room, and when a change is
worth what it costs.

Design: docs/design/0053-elastic-sizes.md
"""

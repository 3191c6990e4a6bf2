"""Decides. Pure: facts in, decisions out, time as an argument; no I/O, no clock, no threads, no
logging, no randomness. Read cycle.turn first, then cluster, learning, placement, snapshot and view."""

"""Decides which gang runs where. Pure: facts in, decisions out, time is an argument; no I/O, clock, threads,
logging or randomness. Read cycle.schedule_once first. The layers, each of which imports only those below it:

cycle, apply       one scheduling cycle; the table of facts and their handlers
scheduler          composes the parts of the scheduler
reserved_capacity  what a gang may use while others hold reservations; pass_reservations: those of one pass;
pass_claims:
                   the gangs that take the place of victims in it
preemption         preemption, reclaim, defragmentation, with the least work lost
reservation        capacity kept for the head of a queue; backfill behind it
status             reasons, phases and conditions of gangs, queues and HyperNodes
placement          where a gang fits, and why it does not
queues             order of gangs, fair shares, quota, admission
binding            from assignments to bindings; partial_gangs: gangs that lost members
state              gangs, pods, owners and network tree, as the facts say; pending gangs
snapshot           free capacity as columns and per pod class; drafts
scoring            preferences and fragmentation
filters            which nodes a pod class may use
volumes            claims, volumes and where they can be used
inventory          nodes, pods, GPUs, NICs, topology domains
"""

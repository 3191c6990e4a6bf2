"""The scheduler: facts in, decisions out. Pure: time is an argument; no I/O, clock, threads, logging or randomness.

Read cycle.py first. Each layer imports only those below it:

cycle, apply             one scheduling cycle; the handlers of facts
reserved_capacity        what a gang may use beside reservations; scheduler composes, invariants checks
preemption               preemption, reclaim and defragmentation with the least harm
reservation, status      capacity for the head of a queue; phases, reasons and status of objects
placement, queues        where a gang goes; which gang is next, quota and fair shares
state                    nodes, pods and gangs as known, and the handlers that change them
snapshot                 free capacity and tentative placements on it
scoring, filters         which nodes are preferred; which nodes a pod may use at all
volumes, inventory       free volumes; nodes, devices and the network tree
"""

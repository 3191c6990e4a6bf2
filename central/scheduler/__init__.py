"""Decides. Pure: facts in, decisions out, time as an argument; no I/O, no clock, no threads, no
logging, no randomness. Read cycle.turn first; then cluster, gangs and promises; then the rooms:

learning   facts into the cluster
fleet      what is there and what is free: nodes, network tree, snapshot, drafts
filters    which nodes a kind of pod may use at all
line       whose turn it is: queues, fair shares
placement  where a gang goes
waiting    room kept for the head of the line, backfill behind it
yielding   preemption, reclaim, defragmentation: the least harm
saying     reasons, phases, status
jobs       the Job controller; batch: Commands, CronJobs, JobFlows
"""

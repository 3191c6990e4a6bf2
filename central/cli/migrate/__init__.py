"""`lockstep migrate check`: what would change on a cluster that Volcano, Kueue or kube-scheduler serves today.

    migrate_command     the command: flags, output, exit code
    from_volcano, from_kueue, from_kube_scheduler
                        pure: objects to findings, one module for each scheduler
    cluster_objects     reads the cluster: bounded lists, and what could not be read
    finding             one sentence about one object, and how serious it is

Design: docs/design/installation.md
"""

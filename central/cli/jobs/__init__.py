"""`lockstep job`, `queue` and `group`: what people type about their work. They speak to the API server
with the user's own kubeconfig, so everybody may do here what they may do with kubectl.

    flags       what can be typed (typed: and how)    api      the API server, with sentences
    runs        job run: from flags or a file         changes  suspend, resume, delete, queues' states
    lists       job, queue, group list                views    one of them, with pods, events and why
    watching    as it changes                         logs     of all pods of a job
    tables      within the terminal's width           writing  JSON and YAML
    do          from what is typed to what is done    completion   of a shell, and of kubectl
"""

"""`lockstep job`, `queue` and `group`: commands that talk to the API server with the user's kubeconfig,
so that they may do exactly what the user may do with kubectl.

    job_flags      verbs and their flags                 dispatch        from parsed flags to a command
    job_run        job run: from flags or manifests      mutate          suspend, resume, delete, queues
    list_command   list, with its columns                describe        view: one object with its context
    follow         job watch and job logs                api             the API server, errors as sentences
    terminal_table tables within the terminal's width    completion      of shells and kubectl
"""

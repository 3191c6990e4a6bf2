"""One per cluster: facts in, one turn, decisions out.

    kube.watch, intake --facts--> loop --turn--> core.cycle --decisions--> kube.effects --> facts ...

core is pure: it decides. loop owns the cluster: it is the one thread that calls core. kube speaks
to the API server, intake to the agents, desk to people. standalone and simulator replace only the
outer ring."""

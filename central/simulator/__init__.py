"""`lockstep simulate`: the scheduler and its controllers on virtual time.

    manifests -> documents -> scenario (facts with their times)
    -> simulation (cycle by cycle; world stands for API server, controllers and kubelets)
    -> SimulationResult -> sim_report (JSON, table), figure (SVG)

The code path is that of the live scheduler: central.kube.decode reads the manifests, central.scheduler.cycle
decides."""

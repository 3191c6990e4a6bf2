"""`lockstep simulate`: the same core on virtual time.

    manifests -> documents -> scenario (facts, each with its time) -> run: turn by turn, with world as
    API server, controllers and kubelets -> story (what happened) -> report (JSON, table), figure (SVG)

One code path with the live centre: central.kube.objects reads the manifests, central.scheduler.cycle
decides."""

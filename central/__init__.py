"""The scheduler, one per cluster.

    kube.transport.watch, server.grpc --facts--> server.loop --decisions--> kube.write --facts--> ...

scheduler and controllers are pure and decide. server.loop owns the cluster state and is the only thread
that calls them. kube talks to the API server, server.grpc to agents and users. simulator replaces the
server, and standalone the cluster."""

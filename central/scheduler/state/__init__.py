"""Facts into the cluster, by what they speak of. Cluster.apply is the only way in."""

"""The kubelet: the device plugins that it calls (registration, plugin), and which container holds
which devices (pod_resources, checkpoint, unlisted_pods)."""

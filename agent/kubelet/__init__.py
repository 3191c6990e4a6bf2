"""The kubelet's side: registered and answered (registration, plugin), asked who holds what (podresources, checkpoint)."""

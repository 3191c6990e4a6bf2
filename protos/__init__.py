"""What agent, centre and kubelet agree on: the bytes on the wire (.proto, stubs), the words for
a node's shape (topology), the one choice both sides must make alike (closest), and the
Kubernetes names both use (names). Needs neither agent nor central."""

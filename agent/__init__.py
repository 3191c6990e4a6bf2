"""One per node: sees the hardware, serves the kubelet, tells the centre. It has no rights on the API server.

    nvml, machine --facts--> survey --topology--> health --> hardware --> node --> reporter --> the centre
    the kubelet --> kubelet --> offers, sharing, mig, cards --> the container; who got what --> node

node owns the state of now; hardware keeps the topology in it true. machine and health are pure, and so
is every choice (allocation, choosing). service starts the threads; keeper is a process of its own."""

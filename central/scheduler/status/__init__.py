"""What is said, and when: reasons, phases, the status of queues and HyperNodes."""

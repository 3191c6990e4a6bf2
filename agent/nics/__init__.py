"""Network cards as a resource: which are offered (offered), whose shares a container gets (choosing), and what a pod
may take of them (limits), in its cgroup before its first process."""

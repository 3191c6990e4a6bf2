"""The limit of this process's open files and sockets. The default of many systems is 1,024."""

import resource


def allow(wanted: int) -> None:
    """Raises the limit to at least the wanted number, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))

"""What the machine is: raw facts of sysfs and the host (NVML's are read next door), made into a topology (survey,
pairs, findings; pure). A capture is the facts, written down."""

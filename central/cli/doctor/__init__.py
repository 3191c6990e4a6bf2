"""`lockstep doctor`: what an installation lacks, and what to attach to a report."""

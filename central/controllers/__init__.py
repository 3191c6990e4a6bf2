"""Controllers of the batch API: Jobs (job/), Commands, CronJobs and JobFlows. Each one turns facts into
decisions. They do no I/O and read no clock."""

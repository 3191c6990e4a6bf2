"""What is around Jobs: Commands that people give, CronJobs that make Jobs by the clock, JobFlows that make them
one after the other. Facts in, decisions out; pure, as all of the core."""

"""The shell around the job: Structured Streaming, executors, checkpoints."""

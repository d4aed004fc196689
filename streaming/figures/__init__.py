"""The figures of a running job."""

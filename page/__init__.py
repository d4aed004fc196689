"""A running job, shown: the web page, `/metrics`, `/healthz`, `/readyz` and the status as JSON.

Everything is rendered from `job.status()` and the views' Delta tables.
"""

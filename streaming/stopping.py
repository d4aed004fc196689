"""Being told to stop while waiting for something that may never come."""


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """The job was told to stop while it waited; what it was at has not been committed."""

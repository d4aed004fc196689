"""Being told to stop while waiting for something that may never come."""


class Stopped(Exception):
    """The job was told to stop while it waited; what it was at has not been committed."""

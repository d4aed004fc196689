"""An audit: does a stored view hold now? Without its history, by samples (`audit.py`)."""

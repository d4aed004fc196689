"""The adapters under test, one file each."""

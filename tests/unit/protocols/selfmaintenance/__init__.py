"""Self-maintenance: definitions, statements and advice."""

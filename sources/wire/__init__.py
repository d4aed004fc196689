"""Questions, answers and status over Arrow Flight: both ends of a query server's connection."""

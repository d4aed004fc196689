"""The page over real sources, in a real browser."""

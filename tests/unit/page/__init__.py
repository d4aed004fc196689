"""The page without a browser: metrics, health, who may look, what it shows."""

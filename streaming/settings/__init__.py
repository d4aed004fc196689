"""The user's settings: `warehouse.toml` and the SQL files of views."""

"""What a user writes: `warehouse.toml` and the SQL files of views."""

"""The rules: each is a function that yields what breaks it."""

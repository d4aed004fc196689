"""What tests are run with: the system in parts and as a whole, oracles, and ways to wait."""

"""What is known of a running job in numbers."""

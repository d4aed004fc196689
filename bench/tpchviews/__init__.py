"""TPC-H: its schema over three sources, and views that answer its 22 questions in our own words."""

"""The input from the sources: records of their topics, and answers to questions."""

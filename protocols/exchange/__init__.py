"""Between the warehouse and its sources: questions, answers, updates, and their correction."""

"""Between the warehouse and its sources: questions, answers, updates, and what makes them agree."""

"""Both verdicts: what a model's answers are by definition, and what its inside speaks for."""

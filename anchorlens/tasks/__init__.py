"""What a model is asked: the tasks, how well it answers, and the definition of the phases."""

"""What several products share: tasks in words."""

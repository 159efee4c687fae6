"""What several extras share: tasks in words."""

"""What the scripts of several figures share."""

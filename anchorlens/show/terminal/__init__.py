"""Tables and lines for people at a terminal."""

"""The tables and lines of the terminal output."""

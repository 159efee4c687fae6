"""Text as bytes: files that the user names, or what comes with the Python that is running."""

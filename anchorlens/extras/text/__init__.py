"""Text as bytes: files that the user names, or files that come with the running Python."""

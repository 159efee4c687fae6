"""What `anchorlens control` is worth, on runs that its list was not chosen by."""

"""The views that a notebook shows of a verdict, an audit, a sweep."""

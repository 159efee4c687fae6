"""Whether training data that are left out of further training survive."""

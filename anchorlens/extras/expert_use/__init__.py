"""Which experts of a mixture the tokens use."""

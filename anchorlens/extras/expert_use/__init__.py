"""Expert use: which experts of a mixture the tokens use."""

"""Models: configurations, gamma initialisation, building, hooks, and running a model to measure it."""

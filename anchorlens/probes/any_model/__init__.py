"""Probes of any HookedTransformer."""

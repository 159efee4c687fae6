"""Retrieval beside reasoning: a model that looks up what it has seen, and answers the rest by itself."""

from anchorlens.retrieval.beside import LookedUp, RetrievingModel, with_retrieval
from anchorlens.retrieval.places import HOOKS, Place

__all__ = ["HOOKS", "LookedUp", "Place", "RetrievingModel", "with_retrieval"]

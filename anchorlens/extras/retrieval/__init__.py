"""Retrieval: a model that looks up answers to training inputs, and computes all other answers."""

from anchorlens.extras.retrieval.beside import LookedUp, RetrievingModel, with_retrieval
from anchorlens.extras.retrieval.places import HOOKS, Place

__all__ = ["HOOKS", "LookedUp", "Place", "RetrievingModel", "with_retrieval"]

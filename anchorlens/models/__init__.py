"""ModelConfig to HookedTransformer: gamma, blocks, hooks, and K models in one set of tensors."""

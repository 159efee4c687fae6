"""COGS: English sentences to logical forms, with lexical and structural generalisation."""

"""What others wrote, read as data alone and printed as text alone.

A file's name or content may be anything: control characters that steer a terminal, a text of megabytes, a
pipe that never ends, brackets nested a million deep, a pickle that runs a program. Three jobs, and nothing
outside this folder does them another way:

- `safe_text` and `safe_repr` make a text or a value safe to print;
- `read_json` and `read_toml` read text (`read_bytes` and `ordinary_file`: a file) bounded and as data;
- `read_tensors` reads `.pt` and `.safetensors` files without running anything.

What is refused is a `CheckpointError` (`reading` makes one of other errors), and `limits` says how much is
too much.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

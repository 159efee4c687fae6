"""Read untrusted files as data only.

A file may be megabytes of text, an endless pipe, a million nested brackets, or a pickle that runs programs.
Only this folder does the following two jobs:

- `read_json` and `read_toml` read text (`read_bytes` and `ordinary_file`: a file) within limits and as data;
- `read_tensors` reads `.pt` and `.safetensors` files without running anything; `kind_of` names
  the format of another file.

A refused file raises `CheckpointError` (`reading` converts other errors to it); `refusals` also
refuses files that are too large.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

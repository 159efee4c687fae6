"""Read untrusted files as data only.

A file's content may be anything: a text of megabytes, a pipe that never ends, brackets nested a million deep,
a pickle that runs a program. Two jobs are done here, and nowhere else in the package:

- `read_json` and `read_toml` read text (`read_bytes` and `ordinary_file`: a file) bounded and as data;
- `read_tensors` reads `.pt` and `.safetensors` files without running anything; `kind_of` says what another
  file is.

A refused file raises `CheckpointError` (`reading` turns other errors into one); `limits` refuses what is too
large or too costly.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The strip of pictures in the README: five probes of the shipped Phase 3 model, side by side.

python examples/gallery_strip.py --out docs/images/strip.png    # extra [tutorials]: kaleido and pillow
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from PIL import Image

from anchorlens.plots import complete, in_words
from anchorlens.probes import probe_named
from anchorlens.training import checkpoints

PROBES = ("information_flow", "activation_patching", "v_similarity", "q_condensation", "mask_key_token")
HEIGHT, SPACE = 340, 12
"""Pixels of the strip, and between two pictures."""


def main() -> None:
    """Read the command line, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    pictures = []
    for name in PROBES:
        figure = complete(probe_named(name)(checkpoints.shipped()[3]).plot(), in_words(name))
        picture = Image.open(io.BytesIO(figure.to_image("png"))).convert("RGB")
        pictures.append(picture.resize((round(picture.width * HEIGHT / picture.height), HEIGHT)))
    width = sum(picture.width + SPACE for picture in pictures) - SPACE
    strip, left = Image.new("RGB", (width, HEIGHT), "white"), 0
    for picture in pictures:
        strip.paste(picture, (left, 0))
        left += picture.width + SPACE
    strip.quantize(128).save(given.out, optimize=True)


if __name__ == "__main__":
    main()

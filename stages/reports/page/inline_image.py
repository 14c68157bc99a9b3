"""Images inside the page: a PNG file as an <img> that needs no other file."""

import base64
import html
import io
from pathlib import Path

from PIL import Image, UnidentifiedImageError

COLOURS = 256
"""Of the palette; a plot of a few colours loses nothing that can be seen, and two thirds of its
bytes."""


def tag(path: Path, *, alt: str) -> str:
    """An <img> with the image as a data URI and its size, so that nothing moves on loading.

    Raises:
        ValueError: there is no such file, it is no PNG, or the image has no description.
    """
    if not alt.strip():
        raise ValueError(
            f"Expected a description of the image {path}, found none: write it between the square "
            f"brackets, for those who do not see the image."
        )
    data, width, height = palette(path)
    text = base64.b64encode(data).decode("ascii")
    return (
        f'<img src="data:image/png;base64,{text}" alt="{html.escape(alt)}" '
        f'width="{width}" height="{height}" style="--natural: {width}px">'
    )


def palette(path: Path) -> tuple[bytes, int, int]:
    """The image on white as a PNG of at most `COLOURS` colours, its width and height in pixels.

    Without dithering: the bytes depend on the pixels alone.

    Raises:
        ValueError: there is no such file, or it is no PNG.
    """
    try:
        with Image.open(path, formats=["PNG"]) as file:
            image = file.convert("RGBA")
    except FileNotFoundError as error:
        raise ValueError(
            f"Expected the image {path}, which a report names; found no such file."
        ) from error
    except UnidentifiedImageError as error:
        raise ValueError(f"Expected a PNG file, found something else in {path}.") from error
    white = Image.new("RGBA", image.size, "white")
    flat = Image.alpha_composite(white, image).convert("RGB")
    few = flat.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    written = io.BytesIO()
    few.save(written, "PNG", optimize=True)
    return written.getvalue(), *image.size

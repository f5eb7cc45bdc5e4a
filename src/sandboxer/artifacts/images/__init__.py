"""Base images: a recipe in `images/*.yaml` is built into a root tree that every sandbox shares, read-only."""

from sandboxer.artifacts.images.archive import load_image_file, save_image
from sandboxer.artifacts.images.bootstrap import Progress, Report
from sandboxer.artifacts.images.build import Image, build_image, find_image, list_images
from sandboxer.artifacts.images.recipe import Recipe, parse_recipe

__all__ = [
    "Image",
    "Progress",
    "Recipe",
    "Report",
    "build_image",
    "find_image",
    "list_images",
    "load_image_file",
    "parse_recipe",
    "save_image",
]

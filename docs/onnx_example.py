"""A model that `dicap-stage export` wrote, used with onnxruntime, NumPy and Pillow alone.

python docs/onnx_example.py model.onnx photo.jpg [more.jpg ...]
"""

import csv
import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def rgb(path: str) -> Image.Image:
    """A photograph as the model was trained on it: upright, grey of 16 bits as 8 bits, what is transparent on white."""
    photo = Image.open(path)
    photo.load()
    tiff = photo.format == "TIFF"
    negative = tiff and photo.mode.startswith("I") and photo.tag_v2.get(262) == 0  # white is zero
    if photo.mode == "F" or (photo.mode == "I" and tiff):
        sys.exit(f"{path}: grey values of which nobody knows what is black and what is white; save it as an 8-bit image")
    photo = ImageOps.exif_transpose(photo)  # cameras turn by a note in the file
    if photo.mode.startswith("I"):
        grey = np.asarray(photo)
        if not (grey.min() >= 0 and 4096 <= grey.max() < 65536):
            sys.exit(f"{path}: grey values of 32 bits, or of 8 to 12 bits in 16, and so almost black; save it as an 8-bit image")
        photo = Image.fromarray((grey.astype(np.uint16) >> 8).astype(np.uint8))
        photo = ImageOps.invert(photo) if negative else photo
    if photo.has_transparency_data:
        photo = photo.convert("RGBA")
        photo = Image.alpha_composite(Image.new("RGBA", photo.size, "white"), photo)
    return photo.convert("RGB")


if len(sys.argv) < 3:
    sys.exit("usage: python docs/onnx_example.py MODEL.onnx PHOTO.jpg [MORE.jpg ...]")
session = onnxruntime.InferenceSession(sys.argv[1])
facts = json.loads(session.get_modelmeta().custom_metadata_map["dicap"])
size = facts["input"]["shape"][2]
images = [np.asarray(rgb(path).resize((size, size), Image.Resampling.BILINEAR)) for path in sys.argv[2:]]
scores = session.run(["scores"], {"images": np.stack(images).transpose(0, 3, 1, 2)})[0]  # (images, classes)

rule, table = facts["decisions"], csv.writer(sys.stdout, lineterminator="\n")
for path, row in zip(sys.argv[2:], scores, strict=True):
    for name, p, low, high in zip(facts["classes"], row.tolist(), rule["tau_neg"], rule["tau_pos"], strict=True):
        decision = "yes" if p > high or p == high == low else "no" if p < low else "unsure"
        chance = ""
        if rule["curve"] and decision != "unsure":
            clipped = np.clip(p, 1e-6, 1 - 1e-6)
            present = np.interp(np.log(clipped / (1 - clipped)), rule["curve"]["logit"], rule["curve"]["rate"])
            right = present if decision == "yes" else 1 - present
            decision, chance = (decision, f"{right:.4f}") if right >= 0.5 else ("unsure", "")
        table.writerow([path, name, f"{p:.6f}", decision, chance])

"""A model that `dicap-stage export` wrote, used with onnxruntime, NumPy and Pillow alone.

python docs/onnx_example.py model.onnx photo.jpg [more.jpg ...]
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

if len(sys.argv) < 3:
    sys.exit("usage: python docs/onnx_example.py MODEL.onnx PHOTO.jpg [MORE.jpg ...]")
session = onnxruntime.InferenceSession(sys.argv[1])
facts = json.loads(session.get_modelmeta().custom_metadata_map["dicap"])
size = facts["input"]["shape"][2]
photos = [ImageOps.exif_transpose(Image.open(path)).convert("RGB") for path in sys.argv[2:]]  # cameras turn by a note in the file
images = [np.asarray(photo.resize((size, size), Image.Resampling.BILINEAR)) for photo in photos]
scores = session.run(["scores"], {"images": np.stack(images).transpose(0, 3, 1, 2)})[0]  # (images, classes)

rule = facts["decisions"]
for path, row in zip(sys.argv[2:], scores, strict=True):
    for name, p, low, high in zip(facts["classes"], row, rule["tau_neg"], rule["tau_pos"], strict=True):
        decision = "yes" if p > high or p == high == low else "no" if p < low else "unsure"
        chance = ""
        if rule["curve"] and decision != "unsure":
            clipped = np.clip(float(p), 1e-6, 1 - 1e-6)
            present = np.interp(np.log(clipped / (1 - clipped)), rule["curve"]["logit"], rule["curve"]["rate"])
            right = present if decision == "yes" else 1 - present
            decision, chance = (decision, f"{right:.4f}") if right >= 0.5 else ("unsure", "")
        print(f"{path},{name},{p:.6f},{decision},{chance}")

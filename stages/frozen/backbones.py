"""`dicap-stage backbones`: what to freeze, and what it costs."""

import time
from typing import Any

import click

from stages.support.terminal import finish, say

NAMES = (
    "tf_efficientnet_lite0",
    "resnet50",
    "convnext_tiny.dinov3_lvd1689m",
    "convnext_base.fb_in22k",
    "vit_small_patch14_dinov2.lvd142m",
    "vit_small_patch16_dinov3.lvd1689m",
    "vit_base_patch16_siglip_224.v2_webli",
    "vit_base_patch16_clip_224.openai",
)
PHOTOGRAPHS = 2  # of the pass that is timed
LINE = "{:<36} {:>4} {:<9} {:>8} {:>7}  {}"


@click.command("backbones")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--time", "timed", is_flag=True, help="Measure the seconds per photograph on this machine (half a minute for all).")
def command(names: tuple[str, ...], timed: bool) -> None:
    """List networks that are often frozen, or timm's networks of the NAMEs, as timm describes them.

    Set `backbone` to the name, `image_size` to the size or another one, and `network.normalize` to the listed word, or to auto.
    `backbone_weights: imagenet` fetches the weights from timm's hub; `weights_file` names a .safetensors or .pth file instead.
    The stage features takes the seconds of --time once for each image, or 2 + features.views times if features.views is not 0.
    """
    say(LINE.format("backbone", "size", "normalize", "features", "params", "gives"))
    rows = []
    for name in names or NAMES:
        rows.append(row := describe(name, timed))
        gives = row["gives"] + (f", {row['seconds']:.2g} s" if timed else "")
        million = f"{row['parameters'] / 1e6:.1f} M"
        say(LINE.format(name, row["image_size"], row["normalize"], row["features"], million, gives))
    finish("backbones", {"backbones": rows}, lines=())


def describe(name: str, timed: bool) -> dict[str, Any]:
    """Facts of a timm network at the image size it was trained with; `timed`: with measured seconds a photograph."""
    import timm
    import torch

    from dicap.network import NORMALIZATION, Network
    from dicap.network.backbone import create_backbone, has_class_token, own_normalization

    try:
        config = timm.get_pretrained_cfg(name)
    except RuntimeError:  # a tag that timm does not know, which create_backbone says
        config = None
    size = config.input_size[-1] if config else 224
    with torch.device("cpu" if timed else "meta"), torch.inference_mode():  # meta: shapes alone
        backbone, channels = create_backbone(name, "random", 32, size)
        network = Network(backbone, torch.nn.Identity(), "auto").to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        photographs = torch.zeros(PHOTOGRAPHS, 3, size, size, dtype=torch.uint8)
        height, width = network.features(photographs).shape[2:]
        begin = time.perf_counter()  # of a second pass, as it is among many
        network.features(photographs)
        seconds = (time.perf_counter() - begin) / PHOTOGRAPHS
    own = own_normalization(backbone)
    what = "tokens" if hasattr(backbone, "num_prefix_tokens") else "map"
    return {
        "backbone": name,
        "image_size": size,
        "normalize": next((kind for kind, values in NORMALIZATION.items() if values == own), "auto"),
        "features": channels,
        "parameters": sum(parameter.numel() for parameter in backbone.parameters()),
        "gives": f"{'class + ' if has_class_token(backbone) else ''}{height} x {width} {what}",
        "seconds": seconds if timed else None,
    }

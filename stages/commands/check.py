"""`dicap-stage check`: checks the settings of a run before DVC removes any results."""

import re
from pathlib import Path

import click

from dicap import __version__
from dicap.errors import SettingsError
from dicap.settings import Settings
from dicap.settings.catalogue import BUNDLED, NAMED_WEIGHTS
from stages.support.common import DATA, params_option, raw_set, resolve_and_warn
from stages.support.terminal import finish

KNOWN = (("resnet50", "imagenet"), ("tf_efficientnet_lite0", "lite"), ("test_resnet", "random"))  # backbones of configs/
REQUIREMENTS = Path("requirements.txt")  # written by `dicap-stage new`
REQUIRED = re.compile(r"^dicap==(\d+(?:\.\d+)*)\s*$", re.MULTILINE)


@click.command("check")
@params_option
def command(params: Path) -> None:
    """Check the settings, labels and photographs; warn about settings that have no effect.

    The check is the first stage, because DVC removes a stage's outputs before the stage can find a mistake.
    """
    _check_version()
    resolved = resolve_and_warn(params)
    settings = resolved.settings
    if settings.backbone_weights not in NAMED_WEIGHTS and settings.weights_file is None:
        raise SettingsError(
            f"{resolved.origins['backbone_weights']}: backbone_weights: found {settings.backbone_weights!r}, allowed are "
            f"{', '.join(NAMED_WEIGHTS)}; set weights_file to a file, so that DVC sees it change"
        )
    _check_backbone(settings)
    check_data(settings)
    finish("check", {"settings": str(params)}, ["dicap-stage convert"])


def _check_backbone(settings: Settings) -> None:
    """Raise SettingsError if the backbone or its weights are unusable. KNOWN is not checked, because timm loads slowly."""
    network = settings.network
    if (settings.backbone, settings.backbone_weights) not in KNOWN or (network.stride, network.tokens) != (32, "map"):
        from dicap.network.backbone import create_backbone

        weights = "random" if settings.backbone_weights == "imagenet" else settings.backbone_weights  # no download here
        create_backbone(settings.backbone, weights, network.stride, settings.image_size, network.tokens)


def check_data(settings: Settings) -> None:
    """Raise the DataErrors of `convert` for unreadable labels or missing photographs."""
    if settings.dataset not in BUNDLED:
        from dicap.data.convert import check_files

        check_files(raw_set(settings), DATA, settings.convert.max_rejected)


def _check_version() -> None:
    """Raise SettingsError if the installed version is not the one in requirements.txt, which identifies the code for DVC."""
    required = REQUIRED.search(REQUIREMENTS.read_text(encoding="utf-8")) if REQUIREMENTS.is_file() else None
    if required and required[1] != __version__:
        raise SettingsError(
            f"{REQUIREMENTS}: dicap: found {required[1]}, but {__version__} is installed; pip install -r {REQUIREMENTS}, or "
            f"write {__version__} there: then `dvc repro` runs every stage with it"
        )

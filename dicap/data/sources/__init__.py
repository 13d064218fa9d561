"""Raw data sets, by name. A source lists its images; `dicap.data.convert` reads them."""

import importlib
from pathlib import Path

from dicap.data.sources.base import RawSet
from dicap.errors import SettingsError
from dicap.plugins import plugged
from dicap.settings import Own
from dicap.settings.catalogue import BUNDLED, NONE, OWN

# Imported lazily: digits and pictograms need scikit-learn, and no run needs all of them.
MODULES = {
    "digits": "dicap.data.sources.benchmarks.digits",
    "pictograms": "dicap.data.sources.benchmarks.pictograms",
    "voc2007": "dicap.data.sources.benchmarks.voc",
    "voc2012": "dicap.data.sources.benchmarks.voc",
    "coco2014": "dicap.data.sources.benchmarks.coco",
    "coco2017": "dicap.data.sources.benchmarks.coco",
    "nuswide": "dicap.data.sources.benchmarks.nuswide",
    "awa2": "dicap.data.sources.benchmarks.awa2",
}
LISTS = "dicap.data.sources.benchmarks.formatted"


def read_raw(dataset: str, root: Path, own: Own | None = None, lists: Path | None = None) -> RawSet:
    """List the images, splits and labels of a raw data set.

    Args:
        dataset: a name of `dicap.settings.catalogue.DATASETS`.
        root: `data_root`, absolute; bundled data sets do not read it.
        own: options of the data set `table` (own images); None: the defaults.
        lists: a folder of published lists that replace the data set's own lists.

    Raises:
        SettingsError: the data set has no published lists.
        DataError: a file of the set is missing or malformed.
    """
    if lists is not None:
        if dataset in (*BUNDLED, OWN):
            raise SettingsError(
                f"params.yaml: convert.lists: found {str(lists)!r}, but {dataset} has no published lists; set it to {NONE}"
            )
        return importlib.import_module(LISTS).read_formatted(dataset, lists, root)
    if dataset == OWN:
        return plugged("reader of own labels")(root, own or Own())
    return importlib.import_module(MODULES[dataset]).read(dataset, root)

"""Raw data sets, by name. A source lists its images; `dicap.data.convert` reads them."""

import importlib
from pathlib import Path

from dicap.data.sources.base import RawSet
from dicap.errors import SettingsError
from dicap.settings import Own
from dicap.settings.catalogue import BUNDLED, OWN

# Read lazily: digits and pictograms need scikit-learn, nuswide NumPy files, and nobody needs all of them.
MODULES = {
    "digits": "benchmarks.digits",
    "pictograms": "benchmarks.pictograms",
    "table": "own.read",
    "voc2007": "benchmarks.voc",
    "voc2012": "benchmarks.voc",
    "coco2014": "benchmarks.coco",
    "coco2017": "benchmarks.coco",
    "nuswide": "benchmarks.nuswide",
    "awa2": "benchmarks.awa2",
}


def read_raw(dataset: str, root: Path | None, own: Own | None = None) -> RawSet:
    """List the images, splits and labels of a raw data set.

    Args:
        dataset: a name of `dicap.settings.catalogue.DATASETS`.
        root: `data_root`, absolute; None only for the bundled sets.
        own: options of `table`, anybody's own images; None: those of a set that names none.

    Raises:
        SettingsError: there is no such data set, or it needs a `data_root`.
        DataError: a file of the set is missing or not what it should be.
    """
    if dataset not in MODULES:
        raise SettingsError(f"params.yaml: dataset: found {dataset!r}, allowed are {', '.join(MODULES)}")
    if root is None and dataset not in BUNDLED:
        raise SettingsError(f"params.yaml: data_root: found null, expected the folder of the raw {dataset} data set")
    module = importlib.import_module(f"dicap.data.sources.{MODULES[dataset]}")
    return module.read(root, own or Own()) if dataset == OWN else module.read(dataset, root)

"""What each of the twelve methods does on each of the paper's four data sets, from the settings in force: by hand."""

import numpy as np
import pytest
from ruamel.yaml import YAML
from tiny import ROOT, nested

from dicap.lab.tables import published_numbers, spec_of
from dicap.methods import build_method
from dicap.methods.base import Roles
from dicap.settings.fields import ORIGINS
from dicap.settings.methods import METHODS
from dicap.settings.resolve import resolve_values

VALUES = YAML(typ="safe", pure=True).load((ROOT / "params.yaml").read_text())
RATIOS = (0.05, 0.1, 0.15, 0.2)
CLASSES = {"voc2012": 20, "coco2014": 80, "nuswide": 81, "awa2": 85}
ROLES = Roles(np.arange(40), np.arange(40, 50), np.arange(50, 1000), np.arange(0))

# Data sets, methods, what is in force, and the source of a row, known by reading. A star: no source says so, docs/methods.md
# gives the reason.
TABLE = """
voc2012 | dicap | ml_decoder | 12 x 16+16 32+32 48+48 64+64 | raw * | 28/40 x 2+30 4+28 6+26 8+24 | 0.0001 | paper, CAP *
coco2014 | dicap | ml_decoder | 12 x 16+16 32+32 48+48 64+64 | raw * | 28/40 x 4+60 8+56 12+52 16+48 | 0.0001 | paper, CAP *
nuswide | dicap | ml_decoder | 12 x 16+16 32+32 48+48 64+64 | raw * | 28/40 x 4+60 8+56 12+52 16+48 | 0.0001 | paper, CAP *
awa2 | dicap | ml_decoder | 12 x 16+16 32+32 48+48 64+64 | raw * | 28/40 x 4+60 8+56 12+52 16+48 | 0.0001 | paper, CAP *
voc2012 coco2014 nuswide | bce asl | linear | 12 x 16 32 48 64 | - | - | 0.0001 | CAP's warm-up script
awa2 | bce asl | linear | 12 x 16 32 48 64 | - | - | 0.0001 | CAP's warm-up script *
voc2012 coco2014 nuswide | mld | ml_decoder | 12 x 16 32 48 64 | - | - | 0.0001 | CAP's warm-up script
awa2 | mld | ml_decoder | 12 x 16 32 48 64 | - | - | 0.0001 | CAP's warm-up script *
voc2012 | top1 topk iat | linear | 12 x 16 32 48 64 | raw * | 28/40 x 2+30 4+28 6+26 8+24 | 0.0001 | CAP's frame *
coco2014 nuswide awa2 | top1 topk iat | linear | 12 x 16 32 48 64 | raw * | 28/40 x 4+60 8+56 12+52 16+48 | 0.0001 | CAP's frame *
voc2012 coco2014 nuswide awa2 | drml | own | none | - | 150 x 64+64 | pixels auto * | DRML's code; features *
voc2012 | cap | linear | 12 x 16 32 48 64 | raw | 28/40 x 2+30 4+28 6+26 8+24 | 0.0001 | CAP's script
coco2014 | cap | linear | 12 x 16 32 48 64 | raw | 28/40 x 4+60 8+56 12+52 16+48 | 0.0001 | CAP's script
nuswide | cap | linear | 12 x 16 32 48 64 | ema | 28/40 x 4+60 8+56 12+52 16+48 | 0.0001 | CAP's script
awa2 | cap | linear | 12 x 16 32 48 64 | raw | 28/40 x 4+60 8+56 12+52 16+48 | 0.0001 | not its authors': CAP's script *
voc2012 | pclp | own | 10 x 2+6 | raw | 10/10 x 16+48 | 0.0001 | PCLP's scripts
coco2014 nuswide | pclp | own | 1 x 2+6 | raw | 29/29 x 16+48 | 0.0001 | PCLP's scripts
awa2 | pclp | own | 10 x 2+6 | raw | 28/28 x 16+48 | 0.0001 | not its authors': common epochs *
voc2012 | bbam | own | 12 x 16 | raw | 28/40 x 2+30 4+28 8+24 16+16 | 5e-05 | BBAM's script
coco2014 | bbam | own | 12 x 16 | raw | 28/40 x 4+60 8+56 16+48 32+32 | 0.0001 | BBAM's script
nuswide | bbam | own | 12 x 16 | raw | 28/40 x 4+60 8+56 16+48 32+32 | 0.0001 | not its authors': BBAM's script *
awa2 | bbam | own | 12 x 16 | ema | 28/40 x 32+96 | 0.0001 | BBAM's script
voc2012 | d2l | linear | 12 x 16 32 48 64 | raw | 28/40 x 2+30 4+28 6+26 8+24 | 0.0001 | D2L's script
coco2014 nuswide | d2l | linear | 12 x 16 32 48 64 | raw | 28/40 x 4+60 8+56 12+52 16+48 | 0.0001 | D2L's script
awa2 | d2l | linear | 12 x 16 32 48 64 | raw | 28/40 x 4+60 8+56 12+52 16+48 | 0.0001 | not its authors': D2L's script *
"""

LINES = [line.split(" | ", 2) for line in TABLE.strip().splitlines()]
ROWS = [(s, m, row.rpartition(" | ")[0]) for sets, methods, row in LINES for s in sets.split() for m in methods.split()]


def in_force(dataset: str, method: str) -> str:
    """Warm-up epochs x images at the four ratios -> what it passes on; main epochs / cycle x labelled + unlabelled; peak rate."""
    cells = []
    for ratio in RATIOS:
        changes = {"dataset": dataset, "data_root": "/nowhere", "method": method, "ratio": ratio}
        found = resolve_values(nested(VALUES, changes), ROOT / "params.yaml")
        phases = build_method(found.settings, CLASSES[dataset])
        cells.append((phases.warmup(ROLES), phases.main(ROLES)))
    s, starred = found.settings, [key for key, origin in found.origins.items() if origin == ORIGINS["assumed"]]

    def batches(stage: int) -> str:
        sizes = [(p[stage].batch_labelled, p[stage].batch_unlabelled) for p in cells]
        texts = [f"{a}+{b}" if b else f"{a}" for a, b in sizes]
        return texts[0] if len(set(texts)) == 1 else " ".join(texts)

    first, second = cells[-1]
    rate = s.bbam.lr if method == "bbam" and s.bbam.lr != "auto" else s.optimiser.lr
    parts = [s.head, f"{first.epochs} x {batches(0)}" if first.epochs else "none"]
    if not METHODS[method].unlabelled:
        return " | ".join([*parts, "-", "-", f"{rate:g}"])
    passed = s.warmup.passes_on + " *" * ("warmup.passes_on" in starred) if first.epochs else "-"
    length = f"{second.epochs}/{second.cycle_epochs or second.epochs}" if method != "drml" else f"{second.epochs}"
    parts += [passed, f"{length} x {batches(1)}"]
    return " | ".join([*parts, f"{rate:g}" if method != "drml" else f"pixels {s.network.normalize} *"])


@pytest.mark.parametrize(("dataset", "method", "row"), ROWS, ids=[f"{dataset}-{method}" for dataset, method, _ in ROWS])
def test_a_row_s_settings_in_force(dataset, method, row):
    assert in_force(dataset, method) == row


def test_every_method_of_the_paper_s_table_has_a_row_for_every_set():
    published = {(dataset, method) for method, dataset, _ in published_numbers(spec_of("main")[0])}
    assert sorted((dataset, method) for dataset, method, _ in ROWS) == sorted(published)


def test_features_of_the_pretrained_network_are_normalised_as_it_was_trained_unless_set():
    def normalize(**changes):
        changes = {"dataset": "voc2012", "data_root": "/nowhere", "method": "drml"} | changes
        return resolve_values(nested(VALUES, changes), ROOT / "params.yaml").settings.network.normalize

    assert normalize() == "auto" and normalize(method="cap") == "none"
    assert normalize(**{"drml.features": "warmup"}) == "none" and normalize(**{"network.normalize": "half"}) == "half"

"""The number of labelled images per step. As published it grows with the labelled share of the data (docs/methods.md 2.8).

`share`: number of labelled images / number of training images.
"""

from dicap.settings.schema import Settings


def warmup_batch(s: Settings, share: float) -> int:
    """Labelled images of a warm-up step; auto: 16/32/48/64 at 5/10/15/20 % labelled."""
    return min(max(round(320 * share), 4), 64) if s.warmup.batch_size == "auto" else s.warmup.batch_size


def labelled_batch(s: Settings, share: float) -> int:
    """Labelled images of a main step; auto: 4/8/12/16 of 64 at 5/10/15/20 %, at most half."""
    size, batch = s.train.batch_labelled, s.train.batch_size
    return min(max(round(1.25 * share * batch), 1), batch // 2) if size == "auto" else size


def pclp_batch(s: Settings) -> tuple[int, int]:
    """Images and labelled images of a step of PCLP's main stage; auto: a quarter is labelled (docs/methods.md 4.7)."""
    size = s.train.batch_size if s.pclp.batch_size == "auto" else s.pclp.batch_size
    labelled = s.train.batch_labelled if s.pclp.batch_labelled == "auto" else s.pclp.batch_labelled
    return size, max(1, size // 4) if labelled == "auto" else labelled

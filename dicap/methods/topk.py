"""Top-k: per image the k highest classes are positive, all others negative (docs/methods.md 4.4)."""

from torch import Tensor

from dicap.methods import rules
from dicap.methods.base import Method, Refresh, Roles, Teacher, hard_mask


class Topk(Method):
    """CAP's two stages with a rule that looks at one image at a time."""

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Pseudo-labels from the teacher's scores of D_u; classes without a labelled positive are left out."""
        y = teacher.labels(roles.labelled)  # (N_l, C)
        active = rules.seen(y)
        p = teacher.scores(roles.unlabelled)  # (N_u, C)
        label = rules.top_k(p, self.k(y), active)
        return Refresh(hard_mask(p, label), guarded=(~active).sum())

    def k(self, y: Tensor) -> int:
        """Positives an image, given the labels (N_l, C)."""
        k = self.settings.topk.k
        return rules.default_k(y, self.settings.dataset) if k == "auto" else k

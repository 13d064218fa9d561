"""Top-k: in each image the k classes with the highest scores are positive, all other classes negative (docs/methods.md 4.4)."""

from torch import Tensor

from dicap.methods import rules
from dicap.methods.base import Method, Refresh, Roles, Teacher, hard_mask


class Topk(Method):
    """CAP's two stages with a rule per image."""

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Pseudo-labels from the teacher's scores of D_u; classes without a labelled positive are left out."""
        y = teacher.labels(roles.labelled)  # (N_l, C)
        active = rules.seen(y)
        p = teacher.scores(roles.unlabelled)  # (N_u, C)
        label = rules.top_k(p, self.k(y), active)
        return Refresh(hard_mask(p, label), guarded=(~active).sum())

    def k(self, y: Tensor) -> int:
        """Number of positives per image, from the labels (N_l, C)."""
        k = self.settings.topk.k
        return rules.default_k(y, self.settings.dataset) if k == "auto" else k

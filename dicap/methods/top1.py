"""Top-1: per image the highest class is positive, all others negative (docs/methods.md 4.4)."""

from dicap.methods import rules
from dicap.methods.base import Method, Refresh, Roles, Teacher, hard_mask


class Top1(Method):
    """CAP's two stages with the rule of single-label learning."""

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Pseudo-labels from the teacher's scores of D_u; classes without a labelled positive are left out."""
        active = rules.seen(teacher.labels(roles.labelled))
        p = teacher.scores(roles.unlabeled)  # (N_u, C)
        return Refresh(hard_mask(p, rules.top_k(p, 1, active)), guarded=int((~active).sum()))

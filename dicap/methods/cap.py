"""CAP: class-distribution-aware pseudo-labelling (NeurIPS 2023; docs/methods.md 4.6)."""

from dicap.methods import rules
from dicap.methods.base import Method, Refresh, Roles, Teacher, hard_mask


class CAP(Method):
    """In each class the share of pseudo-positives equals the share of labelled positives."""

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Pseudo-labels by each class's quota on the teacher's scores of D_u; the mask leaves out scores near the threshold."""
        s = self.settings.cap
        p = teacher.scores(roles.unlabelled)  # (N_u, C)
        label, thresholds, guarded = rules.quota(p, teacher.labels(roles.labelled), eta_pos=s.eta_pos, eta_neg=s.eta_neg)
        return Refresh(hard_mask(p, label), thresholds=thresholds, guarded=guarded)

"""IAT: one threshold for all classes (docs/methods.md 4.4). Its definition is not public; iat.rule names our readings of it."""

from dicap.methods import rules
from dicap.methods.base import Method, Refresh, Roles, Teacher, hard_mask


class IAT(Method):
    """CAP's two stages with one threshold for all classes."""

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Pseudo-labels from the teacher's scores of D_u; classes without a labelled positive are left out.

        iat.rule `fixed`: 1[p >= iat.threshold]; 0.5 is the plain reading of IAT. `matched`, a rule of this project: the
        threshold that gives the labelled images as many predicted as labelled positives.
        """
        s = self.settings.iat
        y = teacher.labels(roles.labelled)  # (N_l, C)
        active = rules.seen(y)
        p = teacher.scores(roles.unlabelled)  # (N_u, C)
        threshold = rules.matched_threshold(teacher.scores(roles.labelled), y) if s.rule == "matched" else s.threshold
        return Refresh(hard_mask(p, rules.fixed_threshold(p, threshold, active)), guarded=(~active).sum())

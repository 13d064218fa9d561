"""L2-regularised logistic regression for many classes and many heads at once, by one batched L-BFGS.

Each head h and class c minimises, over weights w (D,) and an unpenalised bias b,

    0.5 |w|^2 + C * sum_i weight[h, i, c] * ( log(1 + exp(z_i)) - y[h, i, c] z_i ),    z_i = x_i . w + b.

This is scikit-learn's LogisticRegression with sample_weight and with this C (here `loss_weight`), but targets y may be any number
in [0, 1]. Unknown entries and rows of a left-out fold have weight 0, pseudo-labels a weight below 1.

All H * C problems share the rows, so an iteration takes two matrix products. Every problem runs its own L-BFGS, with its own step
and line search, and leaves the batch when it has converged. Rows are first rotated onto their principal axes. This changes no
solution, makes D at most n, and makes the Hessian nearly diagonal, so that its diagonal is a good initial Hessian for L-BFGS.
Features are scaled to a mean square of 1, so that the tolerance has the same meaning for features in any unit.
"""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

MEMORY = 8  # pairs of steps and gradient changes that L-BFGS keeps
BLOCK = 256  # rows per block of element-wise operations, which then fit the processor's cache
SUFFICIENT = 1e-4  # share of the predicted decrease that a step must reach (Armijo condition)
DEFAULT_TOLERANCE = 1e-3
ITERATIONS = 1000  # maximum number of evaluations of the objective


class Solution(NamedTuple):
    """H linear heads over C classes, float64 arrays."""

    w: NDArray  # (H, C, D)
    b: NDArray  # (H, C)
    objective: NDArray  # (H, C): the minimised value
    gradient: NDArray  # (H, C): the Euclidean norm of the final gradient, in units of `tolerance`
    iterations: int  # evaluations of the objective

    def logits(self, x: NDArray) -> NDArray:
        """Logits (H, m, C) of rows (m, D), in the rows' type."""
        heads, classes, features = self.w.shape
        z = x @ self.w.reshape(-1, features).T.astype(x.dtype) + self.b.reshape(-1).astype(x.dtype)  # (m, H * C)
        return np.ascontiguousarray(z.reshape(len(x), heads, classes).swapaxes(0, 1))


class PrincipalAxes(NamedTuple):
    """Rows in coordinates of their principal axes: x = coordinates @ axes.T. Compute it once for several solves on the rows."""

    coordinates: NDArray  # (n, r), r = min(n, D)
    axes: NDArray  # (D, r), orthonormal columns


def rotate(x: NDArray) -> PrincipalAxes:
    """Rows (n, D) on their principal axes, the smallest axis first. This is exact: a rotation that drops no component."""
    assert x.ndim == 2 and x.dtype in (np.float32, np.float64), (x.shape, x.dtype)
    span = None
    if len(x) < x.shape[1]:
        span = np.linalg.qr(x.T)[0]  # (D, n): the optimal w is a combination of rows, so D becomes n
        x = x @ span
    axes = np.linalg.eigh(x.T @ x)[1].astype(x.dtype)
    return PrincipalAxes(x @ axes, axes if span is None else span @ axes)


def solve(
    x: NDArray | PrincipalAxes,
    y: ArrayLike,
    *,
    weight: ArrayLike = 1.0,
    loss_weight: float = 1.0,
    start: Solution | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
) -> Solution:
    """The minimum for every head and class (the objective is in this module's docstring).

    Args:
        x: (n, D) float32 or float64; products are computed in this type, losses are summed in float64. Or the result of `rotate`.
        y: targets in [0, 1], hard or soft, of a shape that broadcasts to (H, n, C); ignored for entries of weight 0.
        weight: non-negative, broadcasts to (H, n, C): shape (n, C) weights entries, (H, n, 1) whole rows of each head.
        loss_weight: scikit-learn's C; a large value means little regularisation.
        start: initial point, for example the solution of the previous round; default: w = 0 and the bias of the share of
            positives.
        tolerance: a problem has converged when the Euclidean norm of its gradient, for features of mean square 1, is at most
            `tolerance`. The penalty's Hessian is the identity, so w is then within `tolerance` of the optimum. Let s be
            `loss_weight` times the sum of the weights. The limit is `tolerance` * s if s is below 1, and `tolerance` * s / 1000
            if s is above 1,000. After ITERATIONS the solver stops with a RuntimeWarning.

    Returns:
        The solution. It is deterministic; the number of threads changes only rounding. If a class has no weight on positives or
        none on negatives, its optimal bias is infinite. Its bias is then fixed by the add-one estimate of its share (one row of
        each outcome added), and only w is fitted.
    """
    y, weight = np.asarray(y), np.asarray(weight)
    rows = x.coordinates if isinstance(x, PrincipalAxes) else x
    n, dtype = len(rows), rows.dtype
    full = heads, _, classes = np.broadcast_shapes(y.shape, weight.shape, (1, n, 1))
    assert full[1] == n, (full, n)
    problems = heads * classes
    target = _columns(np.broadcast_to(y, full), dtype)  # (n, P)
    scale = _columns(np.broadcast_to(weight, full), dtype)
    target[scale == 0] = 0  # unknown entries may be -1 or NaN
    if not isinstance(x, PrincipalAxes):
        used = scale.any(1)  # rows without weight in any problem do not affect the axes
        x, target, scale = rotate(x[used]), target[used], scale[used]
    a, axes = x
    assert target.min(initial=0) >= 0 and target.max(initial=0) <= 1 and scale.min(initial=0) >= 0, "y, weight or l2"

    mean = np.einsum("nr,nr->", a, a, dtype=np.float64) / max(1, len(a) * len(axes))
    unit = a.dtype.type(np.sqrt(mean) or 1)  # root mean square of all features, in their type; 1 if all are 0
    a = a / unit
    strength = loss_weight * float(unit) ** 2  # for features of mean square 1

    positive, total = (scale * target).sum(0, dtype=np.float64), scale.sum(0, dtype=np.float64)  # (P,) weighted rows
    free = (positive > 0) & (positive < total * (1 - 1e-12))  # (P,) the bias has a finite optimum
    share = np.where(free, positive, positive + 1) / np.where(free, total, total + 2)
    v = np.zeros((problems, a.shape[1] + 1), dtype)  # the last coordinate is the bias
    v[:, -1] = np.log(share / (1 - share))
    if start is not None:
        v[:, :-1] = start.w.reshape(problems, -1) @ axes * unit
        v[free, -1] = start.b.reshape(problems)[free]

    # Approximate diagonal of the Hessian: on principal axes it is 1 + (sum of weight p (1 - p)) * (mean square of the axis).
    curvature = (strength * total * np.maximum(share * (1 - share), 1e-3)).astype(dtype)  # (P,)
    spread = np.einsum("nr,nr->r", a, a) / max(len(a), 1)
    diagonal = np.concatenate([1 + curvature[:, None] * spread, np.maximum(curvature, 1e-6)[:, None]], axis=1)  # (P, r + 1)

    scale *= dtype.type(strength)
    size = np.maximum(strength * total, 1e-6)
    limit = tolerance * np.maximum(np.minimum(size, 1), 1e-3 * size)  # float32 cannot reach less than the last term
    v, objective, gradient, iterations = _minimise(_Problems(a, target, scale, free), v, 1 / diagonal, limit)
    gradient *= tolerance / limit
    if not (gradient <= tolerance).all():  # or NaN
        warnings.warn(
            f"{int((~(gradient <= tolerance)).sum())} of {problems} problems ended with a gradient norm of up to "
            f"{gradient.max():.3g}, above the tolerance {tolerance:.3g}, after {iterations} iterations",
            RuntimeWarning,
            stacklevel=2,
        )
    w = v[:, :-1].astype(np.float64) / unit @ axes.T.astype(np.float64)
    shape = (heads, classes)
    return Solution(
        w.reshape(*shape, -1),
        v[:, -1].astype(np.float64).reshape(shape),
        (objective / float(unit) ** 2).reshape(shape),
        gradient.reshape(shape),
        iterations,
    )


class _Problems:
    """Objectives and gradients of the problems that have not converged yet, P at first."""

    def __init__(self, a: NDArray, target: NDArray, scale: NDArray, free: NDArray) -> None:
        self.a, self.target, self.scale, self.free = a, target, scale, free

    def keep(self, chosen: NDArray) -> None:
        """Drop all problems except the chosen ones, (P,) bool."""
        self.target, self.scale = np.ascontiguousarray(self.target[:, chosen]), np.ascontiguousarray(self.scale[:, chosen])
        self.free = self.free[chosen]

    def evaluate(self, v: NDArray) -> tuple[NDArray, NDArray]:
        """Objective (P,) float64 and gradient (P, r + 1) at points (P, r + 1)."""
        w, b = v[:, :-1], v[:, -1]
        value = 0.5 * np.einsum("pr,pr->p", w, w, dtype=np.float64)
        z = self.a @ w.T  # (n, P) logits, overwritten by the residuals
        for start in range(0, len(z), BLOCK):
            rows = slice(start, start + BLOCK)
            block, target, scale = z[rows], self.target[rows], self.scale[rows]
            block += b
            decay = np.abs(block)
            np.negative(decay, out=decay)
            np.exp(decay, out=decay)  # exp(-|z|) cannot overflow
            positive = block > 0
            loss = np.maximum(block, 0)
            block *= target
            loss -= block
            np.divide(1, 1 + decay, out=block)
            loss -= np.log(block)
            value += np.einsum("mp,mp->p", scale, loss, dtype=np.float64)
            np.multiply(block, decay, out=block, where=~positive)  # p = sigmoid(z)
            block -= target
            block *= scale
        gradient = np.empty_like(v)
        np.matmul(z.T, self.a, out=gradient[:, :-1])
        gradient[:, -1] = z.sum(0)
        gradient[:, :-1] += w
        gradient[:, -1] *= self.free
        return value, gradient


def _minimise(problems: _Problems, v: NDArray, inverse: NDArray, limit: NDArray) -> tuple[NDArray, NDArray, NDArray, int]:
    """Batched L-BFGS from v (P, r + 1) until every gradient norm is at most `limit` (P,); inverse: 1 / diagonal of the Hessian.

    Returns:
        points (P, r + 1), objectives (P,), gradient norms (P,), iterations.
    """
    count, size = v.shape
    v = v.copy()
    final_value, final_norm = np.zeros(count), np.zeros(count)
    active = np.arange(count)  # problems that have not converged; the arrays below have a row for each of them
    point = v.copy()
    value, gradient = problems.evaluate(point)
    direction, step = -inverse * gradient, np.ones(count, v.dtype)
    moves, changes = np.zeros((2, MEMORY, count, size), v.dtype)
    rho = np.zeros((MEMORY, count), v.dtype)  # 0: no pair in this slot
    gamma = np.ones(count, v.dtype)  # scale of the diagonal, estimated from the newest pair
    failures = np.zeros(count, int)
    iterations = 1
    while True:
        norm = np.sqrt(np.einsum("pr,pr->p", gradient, gradient, dtype=np.float64))
        done = (norm <= limit) | (failures > 40)  # after 40 halvings of the step only rounding errors remain
        if iterations >= ITERATIONS:
            done[:] = True
        if done.any():
            finished = active[done]
            v[finished], final_value[finished], final_norm[finished] = point[done], value[done], norm[done]
            if done.all():
                return v, final_value, final_norm, iterations
            kept = ~done
            problems.keep(kept)
            active, point, value, gradient, inverse = active[kept], point[kept], value[kept], gradient[kept], inverse[kept]
            direction, step, gamma, failures, limit = direction[kept], step[kept], gamma[kept], failures[kept], limit[kept]
            moves, changes, rho = moves[:, kept], changes[:, kept], rho[:, kept]

        slope = np.einsum("pr,pr->p", gradient, direction)
        trial = point + step[:, None] * direction
        new_value, new_gradient = problems.evaluate(trial)
        iterations += 1
        new_slope = np.einsum("pr,pr->p", new_gradient, direction)
        decreased = new_value <= value + SUFFICIENT * step * slope
        # Close to the optimum the decrease is below rounding error; then the slopes decide (approximate Wolfe conditions).
        close = (new_value <= value + 1e-6 * np.abs(value)) & (new_slope <= -0.8 * slope)
        accepted = decreased | close

        slot = iterations % MEMORY
        move, change = trial - point, new_gradient - gradient
        product = np.einsum("pr,pr->p", move, change)
        usable = accepted & (product > 0)
        moves[slot], changes[slot] = move, change
        rho[slot] = np.where(usable, 1 / np.where(usable, product, 1), 0)
        scaled = np.einsum("pr,pr,pr->p", change, inverse, change)
        gamma = np.where(usable, product / np.where(usable, scaled, 1), gamma)

        point[accepted], value, gradient[accepted] = trial[accepted], np.where(accepted, new_value, value), new_gradient[accepted]
        new_direction = _direction(gradient, moves, changes, rho, inverse * gamma[:, None], slot)
        ratio = -0.5 * slope * step / np.maximum(new_value - value - slope * step, 1e-30)  # minimum of the parabola
        direction[accepted] = new_direction[accepted]
        step = np.where(accepted, 1, step * np.clip(ratio, 0.1, 0.5)).astype(v.dtype)
        failures = np.where(accepted, 0, failures + 1)


def _direction(gradient: NDArray, moves: NDArray, changes: NDArray, rho: NDArray, inverse: NDArray, newest: int) -> NDArray:
    """L-BFGS's two-loop recursion for every problem: minus the approximate inverse Hessian times the gradient, (P, r + 1)."""
    q = gradient.copy()
    order = [(newest - back) % MEMORY for back in range(MEMORY)]
    alpha = np.zeros_like(rho)
    for slot in order:
        if rho[slot].any():
            alpha[slot] = rho[slot] * np.einsum("pr,pr->p", moves[slot], q)
            q -= alpha[slot][:, None] * changes[slot]
    q *= inverse
    for slot in reversed(order):
        if rho[slot].any():
            beta = rho[slot] * np.einsum("pr,pr->p", changes[slot], q)
            q += (alpha[slot] - beta)[:, None] * moves[slot]
    return -q


def _columns(values: NDArray, dtype: np.dtype) -> NDArray:
    """(H, n, C) as (n, H * C), a copy."""
    return np.array(values.swapaxes(0, 1), dtype=dtype, order="C").reshape(values.shape[1], -1)

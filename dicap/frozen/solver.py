"""L2-regularised logistic regression of many classes and many heads at once, by one batched L-BFGS.

Head h and class c minimise, over weights w (D,) and a bias b that is not penalised,

    0.5 |w|^2 + C * sum_i weight[h, i, c] * ( log(1 + exp(z_i)) - y[h, i, c] z_i ),    z_i = x_i . w + b,

which is scikit-learn's LogisticRegression with that C, here `loss_weight`, and sample_weight, for every target y in [0, 1]. An
unknown entry is an entry of weight 0, a pseudo-label one of weight below 1, a fold that is left out rows of weight 0.

All H * C problems share the rows, so each iteration is two matrix products; every problem is at its own place in its own L-BFGS
(own step, own line search) and leaves the products when it has converged. Rows are first rotated onto their principal axes:
that changes no solution, makes D at most n, and makes the Hessian nearly diagonal, which is what L-BFGS starts from. They are
solved in units in which the mean square of a feature is 1, so that the tolerance means the same for features of any unit.
"""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

MEMORY = 8  # pairs of steps and gradient changes that L-BFGS keeps
BLOCK = 256  # rows handled at once elementwise: they stay in the processor's cache
SUFFICIENT = 1e-4  # share of the predicted decrease that a step must reach
DEFAULT_TOLERANCE = 1e-3
ITERATIONS = 1000  # evaluations of the objective at most


class Solution(NamedTuple):
    """H linear heads over C classes, float64 arrays."""

    w: NDArray  # (H, C, D)
    b: NDArray  # (H, C)
    objective: NDArray  # (H, C): the minimised value
    gradient: NDArray  # (H, C): its gradient's Euclidean norm at the end, in the units of `tolerance`
    iterations: int  # evaluations of the objective

    def logits(self, x: NDArray) -> NDArray:
        """Logits (H, m, C) of rows (m, D), in the rows' type."""
        heads, classes, features = self.w.shape
        z = x @ self.w.reshape(-1, features).T.astype(x.dtype) + self.b.reshape(-1).astype(x.dtype)  # (m, H * C)
        return np.ascontiguousarray(z.reshape(len(x), heads, classes).swapaxes(0, 1))


class PrincipalAxes(NamedTuple):
    """Rows in coordinates of their principal axes: x = coordinates @ axes.T. Solve repeatedly on the same rows with one."""

    coordinates: NDArray  # (n, r), r = min(n, D)
    axes: NDArray  # (D, r), orthonormal columns


def rotate(x: NDArray) -> PrincipalAxes:
    """Rows (n, D) on their principal axes, the least one first. Exact: a rotation within the rows' span, nothing is cut off."""
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
    """The minimum of every head and class (the objective is in this module's docstring).

    Args:
        x: (n, D) float32 or float64, in which the products are taken (losses are summed in float64); or `rotate` of it.
        y: targets in [0, 1], hard or soft, of a shape that broadcasts to (H, n, C); anything where the weight is 0.
        weight: non-negative, broadcasts to (H, n, C): (n, C) weighs entries, (H, n, 1) whole rows of each head.
        loss_weight: scikit-learn's C: large is little regularisation.
        start: where to begin, for example the solution of the round before; by default w = 0 and the bias of the share of
            positives.
        tolerance: a problem has converged when the Euclidean norm of its gradient is at most this, of features whose mean square
            is 1. The penalty's Hessian is the identity, so weights are then within `tolerance` of the optimal ones (with the bias
            that belongs to them). Where `loss_weight` times the weights adds up to less than 1, it is this share of that sum,
            and a thousandth of this share of it where it adds up to more than 1,000. After ITERATIONS it stops with a
            RuntimeWarning.

    Returns:
        The solution. The same input gives the same output; the number of threads changes rounding alone. A class without
        positive weight on one of the outcomes has no finite bias: its bias is that of the add-one estimate of its share, one
        row of each outcome added to the weighed ones, and only w is fitted.
    """
    y, weight = np.asarray(y), np.asarray(weight)
    rows = x.coordinates if isinstance(x, PrincipalAxes) else x
    n, dtype = len(rows), rows.dtype
    full = heads, _, classes = np.broadcast_shapes(y.shape, weight.shape, (1, n, 1))
    assert full[1] == n, (full, n)
    problems = heads * classes
    target = _columns(np.broadcast_to(y, full), dtype)  # (n, P)
    scale = _columns(np.broadcast_to(weight, full), dtype)
    target[scale == 0] = 0  # whatever stands for an unknown entry: -1, NaN
    if not isinstance(x, PrincipalAxes):
        used = scale.any(1)  # rows that no problem weighs have no say in the axes
        x, target, scale = rotate(x[used]), target[used], scale[used]
    a, axes = x
    assert target.min(initial=0) >= 0 and target.max(initial=0) <= 1 and scale.min(initial=0) >= 0, "y, weight or l2"

    mean = np.einsum("nr,nr->", a, a, dtype=np.float64) / max(1, len(a) * len(axes))
    unit = a.dtype.type(np.sqrt(mean) or 1)  # root mean square of all features, in their type; 1 where all are 0
    a = a / unit
    strength = loss_weight * float(unit) ** 2  # for features of mean square 1

    positive, total = (scale * target).sum(0, dtype=np.float64), scale.sum(0, dtype=np.float64)  # (P,) counted in rows
    free = (positive > 0) & (positive < total * (1 - 1e-12))  # the bias has an optimum
    share = np.where(free, positive, positive + 1) / np.where(free, total, total + 2)
    v = np.zeros((problems, a.shape[1] + 1), dtype)  # the last coordinate is the bias
    v[:, -1] = np.log(share / (1 - share))
    if start is not None:
        v[:, :-1] = start.w.reshape(problems, -1) @ axes * unit
        v[free, -1] = start.b.reshape(problems)[free]

    # Diagonal of the Hessian, roughly: on principal axes it is 1 + sum of weight p (1 - p) times the axis' mean square.
    curvature = (strength * total * np.maximum(share * (1 - share), 1e-3)).astype(dtype)  # (P,)
    spread = np.einsum("nr,nr->r", a, a) / max(len(a), 1)
    diagonal = np.concatenate([1 + curvature[:, None] * spread, np.maximum(curvature, 1e-6)[:, None]], axis=1)  # (P, r + 1)

    scale *= dtype.type(strength)
    size = np.maximum(strength * total, 1e-6)
    limit = tolerance * np.maximum(np.minimum(size, 1), 1e-3 * size)  # the last: what single precision can reach
    v, objective, gradient, iterations = _minimise(_Problems(a, target, scale, free), v, 1 / diagonal, limit)
    gradient *= tolerance / limit
    if not (gradient <= tolerance).all():  # NaN is not
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
    """Values and gradients of some of the P problems; those that have converged are left out of the products."""

    def __init__(self, a: NDArray, target: NDArray, scale: NDArray, free: NDArray) -> None:
        self.a, self.target, self.scale, self.free = a, target, scale, free

    def keep(self, chosen: NDArray) -> None:
        """Go on with the chosen problems only, (P,) bool."""
        self.target, self.scale = np.ascontiguousarray(self.target[:, chosen]), np.ascontiguousarray(self.scale[:, chosen])
        self.free = self.free[chosen]

    def evaluate(self, v: NDArray) -> tuple[NDArray, NDArray]:
        """Objective (P,) float64 and gradient (P, r + 1) at points (P, r + 1)."""
        w, b = v[:, :-1], v[:, -1]
        value = 0.5 * np.einsum("pr,pr->p", w, w, dtype=np.float64)
        z = self.a @ w.T  # (n, P), made in place into the residuals
        for start in range(0, len(z), BLOCK):
            rows = slice(start, start + BLOCK)
            some, target, scale = z[rows], self.target[rows], self.scale[rows]
            some += b
            small = np.abs(some)
            np.negative(small, out=small)
            np.exp(small, out=small)  # exp(-|z|): nothing overflows
            positive = some > 0
            loss = np.maximum(some, 0)
            some *= target
            loss -= some
            np.divide(1, 1 + small, out=some)
            loss -= np.log(some)
            value += np.einsum("mp,mp->p", scale, loss, dtype=np.float64)
            np.multiply(some, small, out=some, where=~positive)  # p
            some -= target
            some *= scale
        gradient = np.empty_like(v)
        np.matmul(z.T, self.a, out=gradient[:, :-1])
        gradient[:, -1] = z.sum(0)
        gradient[:, :-1] += w
        gradient[:, -1] *= self.free
        return value, gradient


def _minimise(problems: _Problems, v: NDArray, inverse: NDArray, limit: NDArray) -> tuple[NDArray, NDArray, NDArray, int]:
    """Batched L-BFGS from v (P, r + 1) until gradient norms are at `limit` (P,).

    Returns:
        points (P, r + 1), objectives (P,), gradient norms (P,), iterations.
    """
    count, size = v.shape
    v = v.copy()
    final_value, final_norm = np.zeros(count), np.zeros(count)
    left = np.arange(count)  # the problems still at work; what follows has a row for each of them
    point = v.copy()
    value, gradient = problems.evaluate(point)
    direction, step = -inverse * gradient, np.ones(count, v.dtype)
    moves, changes = np.zeros((2, MEMORY, count, size), v.dtype)
    rho = np.zeros((MEMORY, count), v.dtype)  # 0: no pair in this place
    gamma = np.ones(count, v.dtype)  # scale of the diagonal, learnt from the newest pair
    failures = np.zeros(count, int)
    iterations = 1
    while True:
        norm = np.sqrt(np.einsum("pr,pr->p", gradient, gradient, dtype=np.float64))
        done = (norm <= limit) | (failures > 40)  # after 40 halvings rounding is all that is left
        if iterations >= ITERATIONS:
            done[:] = True
        if done.any():
            gone = left[done]
            v[gone], final_value[gone], final_norm[gone] = point[done], value[done], norm[done]
            if done.all():
                return v, final_value, final_norm, iterations
            on = ~done
            problems.keep(on)
            left, point, value, gradient, inverse = left[on], point[on], value[on], gradient[on], inverse[on]
            direction, step, gamma, failures, limit = direction[on], step[on], gamma[on], failures[on], limit[on]
            moves, changes, rho = moves[:, on], changes[:, on], rho[:, on]

        slope = np.einsum("pr,pr->p", gradient, direction)
        trial = point + step[:, None] * direction
        new_value, new_gradient = problems.evaluate(trial)
        iterations += 1
        new_slope = np.einsum("pr,pr->p", new_gradient, direction)
        decreased = new_value <= value + SUFFICIENT * step * slope
        # Close to the optimum the decrease drowns in rounding; there the slopes tell (approximate Wolfe conditions).
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
        fresh = _direction(gradient, moves, changes, rho, inverse * gamma[:, None], slot)
        ratio = -0.5 * slope * step / np.maximum(new_value - value - slope * step, 1e-30)  # minimum of the parabola
        direction[accepted] = fresh[accepted]
        step = np.where(accepted, 1, step * np.clip(ratio, 0.1, 0.5)).astype(v.dtype)
        failures = np.where(accepted, 0, failures + 1)


def _direction(gradient: NDArray, moves: NDArray, changes: NDArray, rho: NDArray, inverse: NDArray, newest: int) -> NDArray:
    """L-BFGS's two loops for every problem: minus the approximate inverse Hessian times the gradient, (P, r + 1)."""
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

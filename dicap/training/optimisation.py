"""The optimiser step as published: AdamW, one-cycle, EMA, mixed precision (docs/methods.md 2.6, 2.7)."""

import copy
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from dicap.machine.runtime import Runtime
from dicap.methods.base import ParamGroup


class AdamW(torch.optim.AdamW):
    """Torch's AdamW without its decorators, which load torch's compiler at the first call: 1.4 s, though nothing is compiled."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    state_dict = inspect.unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.AdamW.load_state_dict)


class Optimisation:
    """AdamW on every trainable tensor, a one-cycle schedule, and an EMA copy of the network.

    A method may have several parameter groups, each with its own optimiser and schedule. It may also have companions: networks
    that are trained together with the model but are not part of it.

    If the loss or a gradient is not finite, the device skips the update without synchronising with the CPU. `first_bad_step` is
    the first such step (-1: none).
    """

    def __init__(
        self,
        network: nn.Module,
        runtime: Runtime,
        *,
        lr: float,
        weight_decay: float,
        pct_start: float,
        ema_decay: float,
        cycle_steps: int,
        companions: nn.ModuleDict | None = None,
        param_groups: Sequence[ParamGroup] = (),
    ) -> None:
        self.network = network
        companions = nn.ModuleDict() if companions is None else companions.to(runtime.device)
        self.ema, self._move = copy.deepcopy(network).eval(), get_ema_multi_avg_fn(ema_decay)
        # The tensors are listed once: listing them at each step took a tenth of a small network's step.
        pairs = list(zip(self.ema.state_dict().values(), network.state_dict().values(), strict=True))
        self._averaged = [pair for pair in pairs if pair[0].is_floating_point()]
        self._counted = [pair for pair in pairs if not pair[0].is_floating_point()]
        if not param_groups:
            param_groups = [ParamGroup("network", [p for p in network.parameters() if p.requires_grad], lr, weight_decay)]
        self.param_groups = {group.name: group for group in param_groups}
        self.optimisers = {g.name: AdamW(g.parameters, lr=g.lr, weight_decay=g.weight_decay, fused=True) for g in param_groups}
        cycle_steps = max(cycle_steps, 2)
        if pct_start * cycle_steps == 1:
            pct_start *= 1 + 1e-9  # torch would divide by the 0 steps between the start and a peak at the first step
        # cycle_momentum stays at torch's default, so beta1 runs 0.95 -> 0.85 -> 0.95 as in the published code.
        self.schedules = {
            g.name: torch.optim.lr_scheduler.OneCycleLR(
                self.optimisers[g.name], max_lr=g.lr, total_steps=cycle_steps, pct_start=pct_start
            )
            for g in param_groups
            if g.one_cycle
        }
        self.scaler = torch.amp.GradScaler(runtime.device.type, enabled=runtime.amp is torch.float16)
        self.first_bad_step = torch.full((), -1, dtype=torch.int64, device=runtime.device)
        self.steps = 0  # since this process started
        # Everything below is saved in checkpoints.
        self._saved: dict[str, Any] = {"network": network, "ema": self.ema, "companions": companions, "scaler": self.scaler}
        self._saved |= {f"optimiser of {name}": optimiser for name, optimiser in self.optimisers.items()}
        self._saved |= {f"schedule of {name}": schedule for name, schedule in self.schedules.items()}

    @property
    def lr(self) -> float:
        """The learning rate of the first parameter group in the next step."""
        return float(next(iter(self.optimisers.values())).param_groups[0]["lr"])

    def norms(self, terms: Sequence[Tensor]) -> Tensor:
        """Norm of each term's gradient over all trained parameters, (terms,), without the loss scale; NaN if not finite.

        This takes one backward pass per term and keeps the graph; the state of training does not change.
        """
        parameters, norms = self._without_gradients(self.param_groups), []
        for term in terms:
            gradients = torch.autograd.grad(self.scaler.scale(term), parameters, retain_graph=True, allow_unused=True)
            norm = nn.utils.get_total_norm([g for g in gradients if g is not None])
            norms.append(norm / self.scaler.scale(torch.ones_like(norm)))
        return torch.stack([torch.where(norm.isfinite(), norm, torch.nan) for norm in norms])

    def update(self, loss: Tensor, groups: Sequence[str] = ()) -> None:
        """Backward pass, finite check and AdamW step for the named parameter groups only (default: all)."""
        names = groups or tuple(self.param_groups)
        parameters = self._without_gradients(names)
        self.scaler.scale(loss).backward(inputs=parameters)
        loss = loss.detach()
        if self.scaler.is_enabled():
            # Overflow is normal in fp16: the scaler skips the step and lowers its scale. Only the loss must be finite.
            finite = torch.isfinite(loss)
            for name in names:
                self.scaler.step(self.optimisers[name])
            self.scaler.update()
        else:
            gradients = [p.grad for p in parameters if p.grad is not None]
            finite = torch.isfinite(loss) & torch.isfinite(nn.utils.get_total_norm(gradients))
            for name in names:
                # GradScaler's protocol: with found_inf a fused optimiser skips the step on the device.
                self.optimisers[name].found_inf = (~finite).float()  # type: ignore[attr-defined]
                self.optimisers[name].grad_scale = None  # type: ignore[attr-defined]
                self.optimisers[name].step()
        self.first_bad_step = torch.where(
            (self.first_bad_step < 0) & ~finite, torch.full_like(self.first_bad_step, self.steps), self.first_bad_step
        )

    def _without_gradients(self, groups: Iterable[str]) -> list[nn.Parameter]:
        """The parameters of these groups, after freeing the gradients of the previous step to save memory."""
        parameters = [p for name in groups for p in self.param_groups[name].parameters]
        for p in parameters:
            p.grad = None
        return parameters

    @torch.no_grad()
    def advance(self) -> None:
        """Advance schedules and EMA after the updates of a step (docs/methods.md 2.7, Equation (3))."""
        for schedule in self.schedules.values():
            schedule.step()
        averages, values = map(list, zip(*self._averaged, strict=True))
        self._move(averages, values, 0)
        for count, value in self._counted:  # integers, such as BatchNorm's step counts
            count.copy_(value)
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {name: part.state_dict() for name, part in self._saved.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        for name, part in self._saved.items():
            part.load_state_dict(state[name])

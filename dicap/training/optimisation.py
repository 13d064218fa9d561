"""One optimiser step as published: AdamW, one-cycle, EMA, mixed precision (docs/methods.md 2.6, 2.7)."""

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dicap.machine.runtime import Runtime
from dicap.methods.base import ParamGroup


class AdamW(torch.optim.AdamW):
    """Torch's own, without the decorators that load its compiler at the first call, although nothing is compiled: 1.4 s."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    state_dict = inspect.unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.AdamW.load_state_dict)


class Optimisation:
    """AdamW on every trainable tensor, a one-cycle schedule and an EMA copy of a network.

    A method may have several parameter groups, each with an optimiser and a schedule of its own, and companions: networks
    that are trained beside the model and are no part of it.

    An update is skipped on the device when the loss or a gradient is not finite, without asking the host; `first_bad_step`
    remembers where that happened for the first time (-1: never).
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
        self.companions = nn.ModuleDict() if companions is None else companions.to(runtime.device)
        self.ema, self.ema_decay = copy.deepcopy(network).eval(), ema_decay
        # Listed once: to list the tensors anew at each step took a small network a tenth of it.
        both = list(zip(self.ema.state_dict().values(), network.state_dict().values(), strict=True))
        self._averaged = [pair for pair in both if pair[0].is_floating_point()]
        self._counted = [pair for pair in both if not pair[0].is_floating_point()]
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
        self.steps = 0

    @property
    def optimiser(self) -> torch.optim.Optimizer:
        """The first parameter group's, which is the only one unless the method has several."""
        return next(iter(self.optimisers.values()))

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        return float(self.optimiser.param_groups[0]["lr"])

    def norms(self, terms: Sequence[Tensor]) -> Tensor:
        """Norm of each term's gradient over all that is trained, (terms,), without its scale; NaN where it is not finite.

        A backward pass a term, through a graph that is kept: nothing that training reads is changed.
        """
        parameters = [p for group in self.param_groups.values() for p in group.parameters]
        for p in parameters:
            p.grad = None  # of the step before: the memory is needed
        norms_of_parts = []
        for term in terms:
            gradients = torch.autograd.grad(self.scaler.scale(term), parameters, retain_graph=True, allow_unused=True)
            norms_of_parts.append(torch.nn.utils.get_total_norm([g for g in gradients if g is not None]))
        norms = torch.stack(norms_of_parts) / self.scaler.scale(torch.ones_like(norms_of_parts[0]))
        return torch.where(norms.isfinite(), norms, torch.nan)

    def update(self, loss: Tensor, groups: Sequence[str] = ()) -> None:
        """Backward, finite check and AdamW, for the named parameter groups (all by default) and no others."""
        names = groups or tuple(self.param_groups)
        parameters = [p for name in names for p in self.param_groups[name].parameters]
        for p in parameters:
            p.grad = None
        self.scaler.scale(loss).backward(inputs=parameters)
        loss = loss.detach()
        if self.scaler.is_enabled():
            # Overflow is an ordinary event in fp16: the scaler skips the step and lowers its scale. Only the loss must be finite.
            finite = torch.isfinite(loss)
            for name in names:
                self.scaler.step(self.optimisers[name])
            self.scaler.update()
        else:
            gradients = [p.grad for p in parameters if p.grad is not None]
            finite = torch.isfinite(loss) & torch.isfinite(torch.nn.utils.get_total_norm(gradients))
            for name in names:
                # The protocol by which GradScaler tells a fused optimiser to skip: decided on the device.
                self.optimisers[name].found_inf = (~finite).float()  # type: ignore[attr-defined]
                self.optimisers[name].grad_scale = None  # type: ignore[attr-defined]
                self.optimisers[name].step()
        self.first_bad_step = torch.where(
            (self.first_bad_step < 0) & ~finite, torch.full_like(self.first_bad_step, self.steps), self.first_bad_step
        )

    def advance(self) -> None:
        """After the updates of a step: schedules and EMA."""
        for schedule in self.schedules.values():
            schedule.step()
        self.average()
        self.steps += 1

    def average(self) -> None:
        """Move the EMA towards the network (docs/methods.md 2.7, Equation (3)); what counts, as BatchNorm's steps, is copied."""
        with torch.no_grad():
            if self._averaged:
                averages, values = map(list, zip(*self._averaged, strict=True))
                torch._foreach_lerp_(averages, values, weight=1.0 - self.ema_decay)  # type: ignore[attr-defined]
            if self._counted:
                counts, values = map(list, zip(*self._counted, strict=True))
                torch._foreach_copy_(counts, values)  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the learning rate's table, which the constructor rebuilds."""
        return {
            "network": self.network.state_dict(),
            "ema": self.ema.state_dict(),
            "companions": self.companions.state_dict(),
            "optimisers": {name: optimiser.state_dict() for name, optimiser in self.optimisers.items()},
            "schedules": {name: schedule.state_dict() for name, schedule in self.schedules.items()},
            "scaler": self.scaler.state_dict(),
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken."""
        self.network.load_state_dict(state["network"])
        self.ema.load_state_dict(state["ema"])
        self.companions.load_state_dict(state["companions"])
        for name, optimiser in self.optimisers.items():
            optimiser.load_state_dict(state["optimisers"][name])
        for name, schedule in self.schedules.items():
            schedule.load_state_dict(state["schedules"][name])
        self.scaler.load_state_dict(state["scaler"])
        self.steps = state["steps"]

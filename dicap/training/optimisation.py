"""One optimiser step as published: AdamW, one-cycle, EMA, mixed precision (methods.md 2.6, 2.7)."""

from typing import Any

import torch
from timm.utils.model_ema import ModelEmaV3
from torch import Tensor, nn

from dicap.runtime import Runtime


class Optimisation:
    """AdamW on every trainable tensor, a one-cycle schedule and an EMA copy of a network.

    The step is skipped on the device when the loss or a gradient is not finite, without asking the host; `first_bad_step`
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
    ) -> None:
        self.network = network
        self.ema = ModelEmaV3(network, decay=ema_decay)
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(self.parameters, lr=lr, weight_decay=weight_decay, fused=True)
        cycle_steps = max(cycle_steps, 2)
        if pct_start * cycle_steps == 1:
            pct_start *= 1 + 1e-9  # torch would divide by the 0 steps between the start and a peak at the first step
        # cycle_momentum stays at torch's default, so beta1 runs 0.95 -> 0.85 -> 0.95 as in the published code.
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimiser, max_lr=lr, total_steps=cycle_steps, pct_start=pct_start
        )
        self.scaler = torch.amp.GradScaler(runtime.device.type, enabled=runtime.amp is torch.float16)
        self.first_bad_step = torch.full((), -1, dtype=torch.int64, device=runtime.device)
        self.steps = 0

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        return float(self.schedule.get_last_lr()[0])

    def step(self, loss: Tensor) -> None:
        """Backward, finite check, AdamW, schedule, EMA."""
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        if self.scaler.is_enabled():
            # Overflow is an ordinary event in fp16: the scaler skips the step and lowers its scale. Only the loss must be finite.
            finite = torch.isfinite(loss.detach())
            self.scaler.step(self.optimiser)
            self.scaler.update()
        else:
            gradients = [p.grad for p in self.parameters if p.grad is not None]
            finite = torch.isfinite(loss.detach()) & torch.isfinite(torch.nn.utils.get_total_norm(gradients))
            # The protocol by which GradScaler tells a fused optimiser to skip: decided on the device.
            self.optimiser.found_inf = (~finite).float()  # type: ignore[attr-defined]
            self.optimiser.grad_scale = None  # type: ignore[attr-defined]
            self.optimiser.step()
        self.first_bad_step = torch.where(
            (self.first_bad_step < 0) & ~finite, torch.full_like(self.first_bad_step, self.steps), self.first_bad_step
        )
        self.schedule.step()
        self.ema.update(self.network)
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything but the learning rate's table, which the constructor rebuilds."""
        return {
            "network": self.network.state_dict(),
            "ema": self.ema.module.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken."""
        self.network.load_state_dict(state["network"])
        self.ema.module.load_state_dict(state["ema"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.schedule.load_state_dict(state["schedule"])
        self.scaler.load_state_dict(state["scaler"])
        self.steps = state["steps"]

"""DiCaP (AAAI 2026), Algorithm 1 from end to end, beside labelled-only training with as many steps.

    python examples/dicap_in_150_lines.py

A small network learns which digits stand in a scene: 100 of 2,000 training scenes have labels. Weights, thresholds and losses
are the project's own functions; the rest is torch. Equations have the paper's numbers. The project proper does the same with
pretrained networks, published views and settings, and keeps every epoch's tables (docs/code.md).

Labelled-only training stays ahead here: it learns from all 100 labels and has 79.9, 80.4 and 87.5 mAP; DiCaP holds a fifth of
them out and has 60.2, 62.2 and 72.7 (920 steps each, two minutes on two cores). Short budgets do not pay: on pictograms, with
a network trained whole, DiCaP led by 8.9 after 1,508 steps and had no clear lead after 756 (docs/results.md, "Networks
trained from end to end").
"""

import copy
from itertools import pairwise

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor, nn

from dicap import correctness_weight, dual_thresholds, nt_xent
from dicap.calibration.rates import count_bins, estimate_rates
from dicap.calibration.thresholds import hard_labels
from dicap.data.sources.benchmarks.digits import TRAIN, Scenes
from dicap.losses import asymmetric_loss
from dicap.network.ml_decoder import MLDecoder

N, N_TEST, N_LABELLED, C, BINS = 2000, 500, 100, 10, 20
WARMUP_STEPS, EPOCHS, FINETUNE_STEPS = 700, 3, 40
LABELLED, UNLABELLED = 16, 32  # images of a main step


class Network(nn.Module):
    """Four convolutions and ML-Decoder: logits (B, C) and class-wise embeddings z (B, C, D)."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 32, 64, 96, 128]
        layers = [
            nn.Sequential(nn.Conv2d(a, b, 3, stride=2 if i < 2 else 1, padding=1), nn.BatchNorm2d(b), nn.ReLU())
            for i, (a, b) in enumerate(pairwise(widths))
        ]
        self.backbone = nn.Sequential(*layers)
        self.head = MLDecoder(widths[-1], C, dim=64, ffn=128, heads=4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(self.backbone(x))


def scenes() -> tuple[Tensor, Tensor]:
    """Images (N + N_TEST, 3, 32, 32) in [0, 1] and labels (N + N_TEST, C)."""
    source, images = Scenes(), []
    labels = torch.zeros(N + N_TEST, C, dtype=torch.int8)
    for row, (split, i) in enumerate([("train", i) for i in range(N)] + [("test", i) for i in range(N_TEST)]):
        picture = source.read(i if split == "train" else TRAIN + i).resize((32, 32))
        images.append(torch.from_numpy(np.array(picture)).permute(2, 0, 1))
        labels[row, source.layout(split, i)[0]] = 1
    return torch.stack(images).float() / 255, labels


def strong(x: Tensor) -> Tensor:
    """Strong views (B, 3, 32, 32): shifted, brighter or darker, with a square cut out. The weak view is the image as it is."""
    views = x * (0.6 + 0.8 * torch.rand(len(x), 1, 1, 1))
    for view in views:
        dy, dx, top, left = (*torch.randint(-2, 3, (2,)).tolist(), *torch.randint(0, 24, (2,)).tolist())
        view.copy_(view.roll((dy, dx), (1, 2)))
        view[:, top : top + 8, left : left + 8] = 0.5
    return views


def draw(rows: Tensor, count: int) -> Tensor:
    """`count` of the rows, at random."""
    return rows[torch.randint(len(rows), (count,))]


class Training:
    """A network, its moving average (the teacher) and an optimiser with a one-cycle schedule."""

    def __init__(self, network: Network, parameters: nn.Module, steps: int, lr: float) -> None:
        self.network, self.teacher = network, copy.deepcopy(network)
        self.optimiser = torch.optim.AdamW(parameters.parameters(), lr=lr, weight_decay=1e-4)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimiser, lr, total_steps=steps)

    def step(self, loss: Tensor) -> None:
        """One update of the network, and of its moving average."""
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.schedule.step()
        with torch.no_grad():
            for mean, value in zip(self.teacher.state_dict().values(), self.network.state_dict().values(), strict=True):
                mean.lerp_(value, 0.02) if mean.is_floating_point() else mean.copy_(value)


@torch.inference_mode()
def scores(network: Network, x: Tensor) -> Tensor:
    """Confidences p (n, C) of weak views."""
    network.eval()
    p = torch.cat([network(part)[0].sigmoid() for part in x.split(256)])
    network.train()
    return p


def pseudo_labels(teacher: Network, x: Tensor, y: Tensor, sup: Tensor, est: Tensor, unsup: Tensor) -> tuple[Tensor, Tensor]:
    """Labels (n, C), 1, 0 or -1 for uncertain, and weights w (n, C) of D_unsup: lines 4 to 6 of Algorithm 1."""
    rates = estimate_rates(*count_bins(scores(teacher, x[est]), y[est], BINS))  # Equations (5) and (6)
    thresholds = dual_thresholds(scores(teacher, x[sup]), y[sup])  # Equation (8)
    p = scores(teacher, x[unsup])
    label = hard_labels(p, thresholds)  # Equation (9)
    return label, correctness_weight(p, label, rates)  # Equation (7)


def labelled_only(x: Tensor, y: Tensor, labelled: Tensor, steps: int) -> Network:
    """ASL on strong views of all labelled images."""
    network = Network()
    run = Training(network, network, steps, 2e-3)
    for _ in range(steps):
        rows = draw(labelled, LABELLED)
        run.step(asymmetric_loss(network(strong(x[rows]))[0], y[rows]).sum() / len(rows))
    return network


def dicap(x: Tensor, y: Tensor, labelled: Tensor, unlabelled: Tensor) -> tuple[Network, int]:
    """The network, and its number of steps. Labels of D_est are read to count bins, and by fine-tuning alone."""
    sup, est = labelled[: len(labelled) * 4 // 5], labelled[len(labelled) * 4 // 5 :]
    unsup = torch.cat([unlabelled, est])
    network = labelled_only(x, y, sup, WARMUP_STEPS)
    steps = len(unsup) // UNLABELLED
    run = Training(network, network, EPOCHS * steps, 5e-4)  # a quarter of the first rate: the network is no new one
    for _ in range(EPOCHS):
        label, weight = pseudo_labels(run.teacher, x, y, sup, est, unsup)
        for places in torch.randperm(len(unsup))[: steps * UNLABELLED].split(UNLABELLED):
            rows = draw(sup, LABELLED)
            logits, z_strong = network(strong(torch.cat([x[rows], x[unsup[places]]])))
            with torch.no_grad():
                z_weak = network(x[unsup[places]])[1]
            elements = weight[places] * asymmetric_loss(logits[LABELLED:], label[places])  # 0 where the label is -1
            uncertain = label[places] < 0
            contrast = nt_xent(z_weak[uncertain], z_strong[LABELLED:][uncertain])  # Equation (11)
            supervised = asymmetric_loss(logits[:LABELLED], y[rows]).sum()
            run.step((supervised + elements.sum() + contrast) / (LABELLED + UNLABELLED))  # Equations (10) and (12)
    network.backbone.requires_grad_(False)
    last = Training(network, network.head, FINETUNE_STEPS, 2e-4)
    for _ in range(FINETUNE_STEPS):  # Equation (13)
        rows = draw(est, LABELLED)
        last.step(asymmetric_loss(network(strong(x[rows]))[0], y[rows]).sum() / len(rows))
    return network, WARMUP_STEPS + EPOCHS * steps + FINETUNE_STEPS


def main() -> None:
    """Test mAP of both, for three seeds."""
    x, y = scenes()
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        order = torch.randperm(N)
        labelled, unlabelled = order[:N_LABELLED], order[N_LABELLED:]
        network, steps = dicap(x, y, labelled, unlabelled)
        networks = {"DiCaP": network, "labelled only": labelled_only(x, y, labelled, steps)}
        maps = {name: 100 * average_precision_score(y[N:], scores(each, x[N:])) for name, each in networks.items()}
        print(f"seed {seed}, {steps} steps each, mAP: " + ", ".join(f"{name} {value:.1f}" for name, value in maps.items()))


if __name__ == "__main__":
    main()

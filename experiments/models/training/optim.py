"""Optimisers: Muon (Jordan et al. 2024, with the update scale of Liu et al. 2025, arXiv 2502.16982) for the
matrices inside the blocks, AdamW for the embedding and the norms, and the learning-rate schedule."""

import torch


def orthogonalise(batch):
    """The nearest semi-orthogonal matrix of each matrix in `batch` [n, rows, columns], by five Newton-Schulz steps."""
    x = batch.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.transpose(1, 2) if tall else x


class Muon:
    def __init__(self, parameters, lr, momentum=0.95, decay=0.1):
        self.lr, self.momentum, self.decay, self.scale = lr, momentum, decay, 1.0
        groups = {}
        for p in parameters:
            groups.setdefault(tuple(p.shape), []).append(p)
        self.groups = [(ps, torch.zeros(len(ps), *shape, device=ps[0].device)) for shape, ps in groups.items()]

    @torch.no_grad()
    def step(self):
        lr = self.lr * self.scale
        for parameters, velocity in self.groups:
            grad = torch.stack([p.grad for p in parameters])
            velocity.lerp_(grad, 1 - self.momentum)
            update = orthogonalise(grad.lerp(velocity, self.momentum)).float()
            update *= 0.2 * max(update.shape[1:]) ** 0.5
            torch._foreach_mul_(parameters, 1 - lr * self.decay)
            torch._foreach_add_(parameters, list(update.unbind()), alpha=-lr)


def of_a_block(name, p):
    return p.ndim == 2 and "embed" not in name


class Optimiser:
    """Both optimisers under one schedule. Muon has the parameters that `inside` chooses by name and shape.

    `progress`, in [0, 1], is the count of steps over `steps`, unless it is set from outside.
    """

    def __init__(self, model, muon_lr, adam_lr, steps, warmup=100, flat=0.5, decay=0.1, inside=of_a_block):
        named = list(model.named_parameters())
        outside = [p for n, p in named if not inside(n, p)]
        inside = [p for n, p in named if inside(n, p)]
        self.model, self.steps, self.warmup, self.flat = model, steps, min(warmup, max(1, steps // 10)), flat
        self.muon = Muon(inside, muon_lr, decay=decay)
        fused = named[0][1].is_cuda
        self.adam = torch.optim.AdamW([{"params": outside}], lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0,
                                      fused=fused)
        self.adam_lr, self.count, self.progress = adam_lr, 0, None

    def scale(self):
        """Linear warm-up, a plateau for the share `flat`, then a linear fall to 2 % of the peak."""
        if self.count < self.warmup:
            return (self.count + 1) / self.warmup
        progress = self.count / self.steps if self.progress is None else self.progress
        return 1.0 if progress < self.flat else max(0.02, (1 - progress) / (1 - self.flat))

    def step(self):
        scale = self.scale()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.muon.scale = scale
        for group in self.adam.param_groups:
            group["lr"] = self.adam_lr * scale
        self.muon.step()
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        for parameters, _ in self.muon.groups:
            for p in parameters:
                p.grad = None
        self.count += 1

    def state(self):
        """All that a later run needs to go on: load_state() takes it."""
        return {"velocities": [v for _, v in self.muon.groups], "adam": self.adam.state_dict(), "count": self.count}

    def load_state(self, state):
        for (_, velocity), stored in zip(self.muon.groups, state["velocities"], strict=True):
            velocity.copy_(stored)
        self.adam.load_state_dict(state["adam"])
        self.count = state["count"]

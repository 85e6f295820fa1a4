"""Linear layers: a forward pass, then steps of training until the loss is smaller."""

import torch
from torch import nn

torch.utils.rename_privateuse1_backend("zoom")
torch.utils.generate_methods_for_privateuse1_backend(unsupported_dtype=None)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 128), nn.Linear(128, 5)).to("zoom")
x = torch.randn(16, 128, device="zoom")
print(model(x).device, model(x[0]).cpu())

target = torch.randint(5, (16,), device="zoom")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for _ in range(20):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f}, then {losses[-1]:.3f}")

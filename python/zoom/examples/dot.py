"""Dot products, also of nothing, and their sum over the rows of a matrix."""

import torch

torch.utils.rename_privateuse1_backend("zoom")
torch.utils.generate_methods_for_privateuse1_backend(unsupported_dtype=None)
device = "zoom"

n = 1024
x = torch.ones(n, device=device)
y = torch.ones(n, device=device)
print(torch.dot(x, y))
print(torch.dot(x[:0], y[:0]))

a, b = torch.rand(64, n), torch.rand(64, n)
rows = torch.stack([torch.dot(p, q) for p, q in zip(a.to(device), b.to(device))])
print(torch.allclose(rows.cpu(), (a * b).sum(1)))

"""The shortest program: random numbers on the device. It registers the device as programs for the original do; with
torch-zoom installed, ``import torch`` has done so already."""

import torch
import torch_zoom

torch.utils.rename_privateuse1_backend("zoom")
torch._register_device_module("zoom", torch_zoom)
torch.utils.generate_methods_for_privateuse1_backend(unsupported_dtype=None)
torch_zoom.init_zoom()

x = torch.randn(10, device="zoom")
print(x)
print(torch.zoom.get_device_name(), x.is_zoom, x.abs().sum().item() > 0)

"""Programs of tests in PyTorch's form, for all types of device: each is run as a main program, and not imported."""

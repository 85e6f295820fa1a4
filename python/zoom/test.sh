#!/bin/sh
# PyTorch's tests for all types of device on torch.device("zoom"): docs/device-tests.md. It takes the options of
# python -m chorus_device.devtests, and writes the logs to the current folder.
exec "${PYTHON:-python}" -m chorus_device.devtests zoom "$@"

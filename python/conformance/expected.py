"""Tests that fail, and why. docs/pytorch-conformance.md lists them, too."""

FAILS: dict[str, str] = {}

"""The search path for modules in child processes of tests."""

import os


def path_with(*folders):
    """Return a ``PYTHONPATH`` of these folders and of those that the tests themselves were given."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])

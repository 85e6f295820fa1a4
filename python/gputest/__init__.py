"""The experiment with process groups of Chorus on the GPUs of a machine, which `make gpu-test` runs.

Each check is a function with its expected result beside it (:mod:`gputest.checks`). Processes of one or two ranks run
the checks (:mod:`gputest.rank`). A process that doesn't use GPUs gives each check a deadline, and replaces ranks that
failed or hang (:mod:`gputest.jobs`). The results are one page (:mod:`gputest.page`).
"""

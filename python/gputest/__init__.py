"""The experiment with process groups of Chorus on the GPUs of a machine, which `make gpu-test` runs.

Each check is a function that stands beside what is expected of it (:mod:`gputest.checks`). Processes of one or two
ranks carry the checks out (:mod:`gputest.rank`); a process that knows nothing of GPUs gives each check its time, and
replaces ranks that failed or hang (:mod:`gputest.jobs`). The results are one page (:mod:`gputest.page`).
"""

FAILS = {}
NOT_RUN = {}

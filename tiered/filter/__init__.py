"""Which messages a reader wants: by tag, by SQL92 expression, by what a topic is; whose reads they are (``tenants``).

Owns: filters as brokers understand them. Does not own: how a filtered read is fetched (``fetch``).
"""

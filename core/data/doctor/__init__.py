"""The data doctor: what is wrong with the rows of a file before a run finds out, and the fixes that are safe.

``examine`` passes over the rows once; what it looks for is in ``findings``, and which rows belong together in
``split_groups`` (near duplicates by ``minhash``). ``fixes`` makes a data set without what was found.
"""

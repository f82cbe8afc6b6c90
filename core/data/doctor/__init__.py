"""The data doctor: what is wrong with the rows of a file before a run finds out, and the fixes that are safe.

``examine`` passes over the rows once; each kind of finding is a small file beside it. It runs in a process of its own
(``child``, asked by ``client``), so that a preview never waits behind it.
"""

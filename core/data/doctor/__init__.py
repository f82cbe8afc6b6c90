"""The data doctor: problems in the rows of a file, and their safe fixes.

``examine`` reads the rows once and looks for what ``findings`` defines; ``split_groups`` says which rows belong
together (near duplicates by ``minhash``), and ``fixes`` makes a corrected data set.
"""

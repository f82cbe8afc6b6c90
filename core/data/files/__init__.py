"""Data files on the disk: which may be read, the copies that are kept, and data sets made here."""

"""Data files on the disk: which may be read, the copies that are kept, and the ones made here."""

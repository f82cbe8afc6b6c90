"""A file as rows: bytes to records, records to Examples, with a reason for each row that is left out."""

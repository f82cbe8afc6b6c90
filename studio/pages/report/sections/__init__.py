"""The report in sections, as HTML without a script: for the page and for the file that is given away."""

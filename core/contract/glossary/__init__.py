"""The glossary: every word of the trade that window, command line and README use, explained once."""

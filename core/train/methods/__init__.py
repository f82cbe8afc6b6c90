"""The trainers over the shared step: ``sft.py`` and ``answers.py``; and a file for each loss of answers."""

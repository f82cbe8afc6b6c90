"""DATA: a person's file becomes rows, and rows become token ids with a mask, the same for preview and training.

``service`` is the door of the window: it asks processes that can be killed, and nothing is imported here. In the order
in which a row goes:

    kept      keep (one copy under its hash) · made (data sets made here, with their origin)
    records   textfile jsonstream delimited columnar → sources (a file as ``record``s, each with its number)
    examples  formats (which layout, and why) turns (one record) → examples (what is usable, and what is not and why)
    read      checking (in slices, with a first look) ← reader_child ← reader; example_file (what it left, by row)
    made      mix hub_data ← maker_child ← reader
    template  choosing template (which, what it shows) spans (where answers stand) patience (what it may take)
    tokens    renderer (a row under a template) tokens (ids and mask, uncut) token_table → render (what others call)
    kept      token_cache (by content: shown, measured and trained from there)
    shown     preview ← renderer_child ← service; tokenising facts (lengths); question (asked as rows were trained)
    trained   split (what is held out) packing (windows and passes)
    examined  doctor/ (what is wrong with the rows, which belong together, and the safe fixes)

``serve`` and ``pipe`` are the two ends of every pipe. Heavy, for processes of their own: ``render`` ``renderer``
``renderer_child``.
"""

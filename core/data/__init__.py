"""DATA: a person's file becomes rows, and rows become token ids with a mask, the same for preview and training.

read/      bytes → records (jsonstream, delimited, columnar; sources chooses) → Examples (layouts: which layout and
           why; turns and dialogue: one record; examples: what is usable, and why the rest is not)
files/     admission (which files may be read), keep (one copy under its hash), checking (a file read in slices into
           an example_file of the cache), made (data sets made here: mix, hub_data)
deal/      split (what is held out), packing (optimizer batches and micro-batches)
tokens/    table (rows as ids and mask, uncut), cache (tables by content), facts (their lengths)
render/    which tokens are trained: renderer and mask. template and choosing say what a chat template can show,
           rendering is what other rooms call, preview what a person is shown
doctor/    what is wrong with the rows (findings), which belong together (split_groups), the safe fixes
service/   ``data_service`` for the studio: it asks child processes that can be killed (reader_child,
           renderer_child, work_child) and imports nothing heavy; ``checked`` reads a file for a worker
"""

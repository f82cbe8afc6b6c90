"""DATA: a person's file becomes rows, and rows become token ids with a mask, the same for preview and training.

The way through: ``keep`` (one copy under its hash) → ``sources`` (records) → ``formats`` and ``turns`` (conversations)
→ ``examples`` (what is usable, and what is not and why) → ``template`` and ``render`` (ids and mask) →
``token_cache`` (kept by content: shown, measured and trained from there) → ``packing``.
``service`` does all this for the window in two children that can be killed: nothing is imported here.
"""

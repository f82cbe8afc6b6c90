"""What pages say where the faults of ``core.contract.faults.data`` come up."""

from studio.words.faults.kinds import Words

_OTHER_TEMPLATE = "Under “Chat template” choose ChatML, or choose another model."

DATA: dict[str, Words] = {
    # tokens and groups that are kept
    "data.cache/cleared": (
        "The tokens that were just made were cleared away before they could be used.",
        "Look at the data once more, and they are made again.",
    ),
    "data.cache/disk": (
        "The tokens that were just made could not be kept: {reason}.",
        "Free some disk space, and try again.",
    ),
    "data.cache/no_groups": (
        "Which rows belong together was just worked out, but it was cleared away before it could be used.",
        "Try once more.",
    ),
    # the file itself
    "data.change": (
        "The change of this row could not be kept: {reason}.",
        "Free some disk space, and try again.",
    ),
    "data.changed": (
        "{name} changed while Luthier was reading it.",
        "Wait until no program writes to it, then choose it again.",
    ),
    "data.copy": (
        "Luthier could not keep {what}: {found}.",
        "Free some disk space and try again, or start Luthier with a folder on a larger disk (option --home).",
    ),
    "data.damaged/kept_copy": (
        "Luthier’s own copy of {name} is damaged: it is no longer what was kept.",
        "Choose your own file once more: that makes a new copy. The damaged one is {path}.",
    ),
    "data.damaged/other_content": (
        "The data of this run is not what it was when the run was made. It lies in {path}.",
        "Choose your own file once more under New run: that replaces a damaged copy. To go on with what lies there "
        "now, type in a terminal: python3 launcher.py resume {run} --anyway",
    ),
    "data.empty/file": ("{name} is empty: there are no rows in it.", "Choose another file."),
    "data.empty/no_rows": ("There are no rows in {name}.", "Choose another file."),
    "data.empty/path": ("This file is empty: {path}.", "Choose another file."),
    "data.empty/upload": ("This file is empty: there is nothing to learn from in it.", "Choose another file."),
    "data.empty/white_space": (
        "There is nothing but spaces and blank lines in {name}.",
        "Choose another file.",
    ),
    "data.encoding": (
        "In {name}{where} there are characters that cannot be read: it is saved in neither UTF-8 nor UTF-16.",
        "Save it again with the encoding UTF-8, then choose it again.",
    ),
    "data.ended": (
        "The work on {about} ended early ({reason}).",
        "Try again. If it happens again, choose another file or another chat template.",
    ),
    "data.ending": (
        "Luthier does not know this kind of file: {name}. It reads files that end in {endings}.",
        "Convert it to one of these, or rename it where its ending is wrong.",
    ),
    "data.format/binary": (
        "{name} is a binary file that cannot be read as rows. Luthier reads {accepted}.",
        "Save it as one of these (text as UTF-8), then choose it again.",
    ),
    "data.format/ending": (
        "Luthier cannot read this kind of file ({suffix}): {name}. It reads {accepted}.",
        "Save it as one of these, then choose it again.",
    ),
    "data.json": (
        "{name} cannot be read as JSON. At {where}: {seen} (needed there: {expected}).",
        "Mend that line, or save the file again, then choose it again.",
    ),
    "data.json_shape": (
        "{name} holds one JSON object without a list of rows under “data”.",
        "Save the rows as a JSON array, or one object on each line (JSONL).",
    ),
    "data.memory/child": (
        "It would take more than {megabytes:,} MB of memory to go through {about}, so it was stopped.",
        "Choose a smaller file, or another chat template.",
    ),
    "data.memory/parquet_pages": (
        "{name} is packed too coarsely: what comes after row {number:,} is too large to read in one piece.",
        "Save it with smaller pages (write_batch_size in pyarrow), or as JSONL.",
    ),
    "data.memory/rows": (
        "There is not enough memory to read a row or a table{of}.",
        "Choose a smaller file, or split this one.",
    ),
    "data.missing/gone": (
        "The data file can no longer be opened ({reason}): {path}.",
        "Put it back, or choose the file again.",
    ),
    "data.missing/path": (
        "There is no data file that can be read at {path}. Luthier reads {accepted}.",
        "Check the path, and that the file is one of these (text as UTF-8).",
    ),
    "data.missing/refused": (
        "There is no data file that can be read at {path}. Luthier reads {accepted}.",
        "Check the path. Or drop the file on this page: then you see what is wrong with it.",
    ),
    "data.ours/folder": (
        "This file lies in Luthier’s own folder {folder}, and only data and uploads are read from there: {path}.",
        "Copy it to another folder, and choose it there.",
    ),
    "data.ours/own_file": (
        "This is one of Luthier’s own files, not a data file: {path}.",
        "Choose a file outside of Luthier’s folder.",
    ),
    "data.parquet": (
        "{name} cannot be read as Parquet: it is {found}.",
        "Save it again, or fetch it again where it was downloaded, then choose it again.",
    ),
    "data.sparse": (
        "Large parts of this file were never written: {path}.",
        "If it is a download that was cut off, fetch it again; otherwise choose another file.",
    ),
    "data.stopped": ("Reading {about} was stopped.", "Choose it again to go on."),
    "data.swells": (
        "The rows swell to more than {most:,.1f} GiB as they are read, far more than the file itself.",
        "Save fewer rows, or take out texts that are repeated in every row.",
    ),
    "data.system": (
        "This is a file of the operating system, not a data file: {path}.",
        "Choose another file.",
    ),
    "data.time/beginning": (
        "Even the beginning of {name} took longer than {seconds:g} seconds to read: the disk is slow.",
        "Check the whole file, which may take its time, or copy it to a faster disk.",
    ),
    "data.time/child": (
        "It took longer than {seconds:g} seconds to go through {about}, so it was stopped.",
        "Choose a smaller file, or another chat template.",
    ),
    "data.unexpected": (
        "The data{of} cannot be read: {found}.",
        "Choose another file, or another chat template.",
    ),
    "data.unreadable/permission": (
        "You may not read this file ({reason}): {path}.",
        "Give yourself the right to read it, or choose another file.",
    ),
    "data.unreadable/rows": (
        "None of the first rows of {name} can be read as {how}. Row {row:,}: {fault}.",
        "Save the file again as JSONL, JSON or CSV, then choose it again.",
    ),
    "data.upload_gone": (
        "The file that you dropped here is no longer kept.",
        "Choose the file again.",
    ),
    # columns and layouts
    "data.column_twice": (
        "The column {column!r} is chosen for {roles} at once. Which of them is it?",
        "Under Reading choose another column, or none, for one of them.",
    ),
    "data.columns/too_many": (
        "{name} has {count:,} columns, and at most {most:,} can be read.",
        "Save it with one example per row, and only the columns that are needed.",
    ),
    "data.columns/unknown": (
        "Which column is which? The columns are: {columns}. Luthier looked for {expected}.",
        "Choose the data format and the columns under Reading.",
    ),
    "data.tree": (
        "Each row is one message of a tree of threads (columns message_id, parent_id, role, text), so what it answers "
        "is in another row.",
        "Take a version of the data set with whole conversations, or put each thread into one row of messages.",
    ),
    "data.no_rows": (
        "There are no rows to train on.",
        "Choose another data format or other columns under Reading.",
    ),
    "data.no_row": (
        "There is no row {row:,} in {name}: it may have changed since the table was shown.",
        "Look at the table anew, or choose another row.",
    ),
    "data.nothing/rows": (
        "None of the {rows:,} rows of {name} can be used as it is read now. Row {row:,}: {text}. Which column is "
        "which? The columns are: {columns}.",
        "Choose another data format or other columns under Reading.",
    ),
    "data.nothing_usable": (
        "None of the {rows} rows of {name} can be used.",
        "Choose another data format or other columns under Reading. ({hint})",
    ),
    # what is learned
    "data.nothing/length": (
        "There is nothing to learn within the first {max_length:,} tokens of any row: the answers come after them.",
        "Choose a larger “Max length”, or other columns under Reading.",
    ),
    "data.nothing/no_turn": (
        "There is nothing to learn: no row holds a turn of the kind that “Train on” asks for.",
        "Choose something else under “Train on”, or other columns under Reading.",
    ),
    "data.nothing/template": (
        "The chat template takes none of these rows: {why}",
        "Choose another “Chat template”, or another data format under Reading.",
    ),
    "data.nothing_trained/cut": (
        "There is nothing to learn: no answer is left in {rows} rows once they are cut at {max_length} tokens.",
        "Choose a larger “Max length”, choose other columns under Reading, or set “Train on” to everything.",
    ),
    "data.nothing_trained/mapping": (
        "There is nothing to learn in {path} with these columns and this length.",
        "Choose other columns under Reading, or a larger “Max length”.",
    ),
    "data.no_held_out": (
        "No held-out rows of this run can be shown: it kept none, or its data has changed since.",
        "Type a question of your own.",
    ),
    "data.pairs_equal": (
        "In all {rows:,} pairs of {name} the better and the worse answer are the same. Which column is which?",
        "Under Reading choose the columns chosen and rejected, or choose the method SFT.",
    ),
    "data.marks_one_sided": (
        "All {rows:,} answers of {name} are marked {mark}, and this method compares good ones with bad ones.",
        "Add answers that are marked {other}, or choose the method SFT, which learns from good ones alone.",
    ),
    # labels
    "data.labels/problem": (
        "The labels of {name} cannot be learned as “Labels are” asks: they are of the kind “{kind}”.",
        "Set “Labels are” to “as the column looks”, or choose another column for the label under Reading.",
    ),
    "data.labels/once": (
        "{count:,} of the labels in {name} are in one row only, which is too few to learn them: {labels}.",
        "Add rows of them, correct their spelling, or remove them in the Data doctor under “Rare labels”. Learn "
        "numbers by setting “Labels are” to “a number”. The method SFT takes such rows as they are.",
    ),
    "data.labels/only_one": (
        "Every row of {name} has the same label, {label!r}, so there is nothing to tell apart.",
        "Choose the column of the labels under Reading, or add rows of another label. The method SFT takes such rows "
        "as they are.",
    ),
    "data.labels/too_many": (
        "There are {count:,} different labels in {name}, and at most {most:,} can be learned. Is it the right column?",
        "Choose the column of the labels under Reading. For numbers set “Labels are” to “a number”; for answers in "
        "free text choose the method SFT.",
    ),
    # chat templates and tokenizers
    "data.no_template": (
        "This model brings no chat template of its own.",
        "Set “Chat template” to “choose for me” or to ChatML, or choose an instruct model.",
    ),
    "data.template": (
        "The chat template refuses this row: {reason}.",
        "Under “Chat template” choose ChatML.",
    ),
    "data.template_answers/left_out": (
        "The chat template of this model leaves the answer out, so there is nothing to learn from.",
        _OTHER_TEMPLATE,
    ),
    "data.template_answers/not_once": (
        "The chat template of this model {what}, so the answer cannot be told from the rest.",
        _OTHER_TEMPLATE,
    ),
    "data.template_answers/only_thoughts": (
        "The {name} answer holds nothing but thoughts, and the chat template leaves all of them out.",
        "Under “Chat template” choose ChatML, or leave this row out.",
    ),
    "data.template_memory": (
        "The chat template of this model takes more than {megabytes} MB of memory.",
        _OTHER_TEMPLATE,
    ),
    "data.template_size": (
        "The chat template of this model makes {count:,} characters of one row, far more than the row has.",
        _OTHER_TEMPLATE,
    ),
    "data.template_time": (
        "The chat template of this model was still at work on one row after {seconds:g} seconds.",
        _OTHER_TEMPLATE,
    ),
    "data.tokenizer": (
        "The tokenizer of this model cannot be read: {found}. It was looked for in {folder}.",
        "Choose another model.",
    ),
    "data.tokenizer_slow": (
        "The tokenizer of this model comes without the file tokenizer.json, which is needed: {folder}.",
        "Choose a model that brings a tokenizer.json.",
    ),
    # mixtures, and data sets that are made
    "data.mix/kinds": (
        "These files cannot be mixed: {one} holds {first}, and {other} holds {second}.",
        "Mix pairs with pairs, conversations with conversations, and raw text with raw text.",
    ),
    "data.mix/no_rows": (
        "No row of {source} would be in the mixture: {weight:g} of its {usable:,} rows is less than one.",
        "Give it a larger weight, or remove it.",
    ),
    "data.mix/none": ("Which files should be mixed?", "Add two files or more."),
    "data.mix/weight": (
        "How often should the rows of {source} be seen? A weight is above 0 and at most {most:g}, not {weight:g}.",
        "Type a weight: 1 is each row once per epoch, 0.5 is every second row.",
    ),
    "mix.weight": (
        "How often should the rows of {name} be seen? A weight is a number above 0, not “{found}”.",
        "Type a weight: 1 takes each row once, 0.5 every second one.",
    ),
    "data.no_fix": (
        "There is no safe fix for this finding, so Luthier leaves the rows as they are.",
        "Change these rows by hand, then choose the file again.",
    ),
    "data.nothing/made": (
        "No row would be left in {name}, so it was not made.",
        "Choose another file, or other rows of it.",
    ),
    "doctor.stale": (
        "These rows have changed since they were checked, so this finding may no longer hold.",
        "Open the Data doctor and check them again.",
    ),
    # questions to a model
    "question.answer": (
        "Which answer should be scored? The conversation ends with {role}.",
        "Write the answer below its question.",
    ),
    "question.empty": ("What do you want to ask? There is no text yet.", "Write one, then ask again."),
    "question.long/characters": (
        "The question is too long: it has {count:,} characters, and at most {most:,} tokens can be read here.",
        "Ask a shorter one.",
    ),
    "question.long/tokens": (
        "The question is too long: it has {count:,} tokens, and there is room for less than {most:,}.",
        "Ask a shorter one.",
    ),
}

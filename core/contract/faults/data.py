"""What is said of a person's rows: files, layouts, templates, tokens, mixtures: message and hint by key."""

DATA = {
    "data.cache/cleared": (
        "Expected the tokens that were just made, found them cleared away.",
        "Look at the data once more.",
    ),
    "data.cache/disk": (
        "Expected the tokens that were just made, found {reason}.",
        "Free some disk space, and look at the data once more.",
    ),
    "data.cache/no_groups": ("Expected the groups of rows just found, found none.", "Try once more."),
    "data.change": ("Expected to keep the change of a row, found {reason}.", "Free some disk space, and try again."),
    "data.changed": ("Expected {name} to stay as it is while it is read, found that it changed.", "Choose it again."),
    "data.column_twice": (
        "Expected a column of its own for each of {roles}, found {column!r} for all of them.",
        "Choose another column, or none, for one of them.",
    ),
    "data.columns/too_many": (
        "Expected at most {most:,} columns in {name}, found {count:,}.",
        "Save it with a row an example, and the columns that are needed.",
    ),
    "data.columns/unknown": (
        "Expected {expected}, found the columns: {columns}.",
        "Choose the layout, and which column is which.",
    ),
    "data.copy": (
        "Expected room for {what}, found: {found}.",
        "Free some disk space, or move Luthier's folder with --home.",
    ),
    "data.damaged/kept_copy": (
        "Expected {name} as it was kept (SHA-256 {expected}), found other content ({found}) in {path}.",
        "Choose your own file once more: that makes the damaged copy anew.",
    ),
    "data.damaged/other_content": (
        "Expected the data that run.yaml names (SHA-256 {expected}), found other content ({seen}) in {path}.",
        (
            "Choose your own file once more: that makes a damaged copy anew. Or go on all the same: resume "
            "{run} --anyway."
        ),
    ),
    "data.empty/file": ("Expected rows, found an empty file: {name}.", "Choose another file."),
    "data.empty/no_rows": ("Expected rows, found none in {name}.", "Choose another file."),
    "data.empty/path": ("Expected rows, found an empty file: {path}.", "Choose another file."),
    "data.empty/upload": ("Expected rows, found an empty file.", "Choose another file."),
    "data.empty/white_space": ("Expected rows, found only white space: {name}.", "Choose another file."),
    "data.encoding": ("Expected text in UTF-8 or UTF-16, found other bytes in {name}{where}.", "Save it as UTF-8."),
    "data.ended": (
        "Expected an answer from the {name} about {about}, found that its process ended ({reason}).",
        "Try again; if it happens again, choose another file or template.",
    ),
    "data.ending": (
        "Expected a file that ends in {endings}; found {name!r}.",
        "Convert it, or give it its true ending.",
    ),
    "data.format/binary": (
        "Expected {accepted}, found a binary file: {name}.",
        "Save it as one of these; text as UTF-8.",
    ),
    "data.format/ending": (
        "Expected {accepted}, found {suffix} in {name}.",
        "Save it as one of these and choose it again.",
    ),
    "data.json": (
        "Expected {expected} in {name}, found at {where}: {seen}.",
        "Mend that line, or save the file again.",
    ),
    "data.json_shape": (
        'Expected an array of rows or {{"data": [...]}}, found another object in {name}.',
        "Save the rows as a JSON array, or one object a line (JSONL).",
    ),
    "data.labels/problem": (
        "Expected labels that can be learned as {asked} in {name}, found {kind}.",
        "Set train.problem_type to auto, or choose another column.",
    ),
    "data.labels/once": (
        "Expected two rows or more of each label in {name}, found {count:,} seen once: {labels}.",
        "Add rows of these labels, correct their spelling, or leave their rows out (Data doctor, rare labels); for "
        "numbers set train.problem_type to regression; the method SFT learns from such rows as they are.",
    ),
    "data.labels/only_one": (
        "Expected two different labels or more in {name}, found {label!r} in every row.",
        "Choose the column of the labels under Reading, or add rows of another label; the method SFT learns from such "
        "rows as they are.",
    ),
    "data.labels/too_many": (
        "Expected at most {most:,} different labels in {name}, found {count:,}.",
        "Choose the column of the labels under Reading; for numbers set train.problem_type to regression; where "
        "answers are free text, choose the method SFT.",
    ),
    "data.marks_one_sided": (
        "Expected answers marked good and answers marked bad in {name}, found all {rows:,} marked {mark}.",
        "Add answers marked {other}, or choose the method SFT, which learns from good ones alone.",
    ),
    "data.memory/child": (
        "Expected the {name} to need less than {megabytes:,} MB for {about}, found it above that: it was ended.",
        "Choose a smaller file or another template.",
    ),
    "data.memory/parquet_pages": (
        "Expected Parquet pages that fit the reader's memory, found larger ones behind row {number:,}: {name}.",
        "Save it with smaller pages (a smaller write_batch_size), or as JSONL.",
    ),
    "data.memory/rows": (
        "Expected{of} data that fits the memory it is given, found a row or a table above that.",
        "Choose a smaller file.",
    ),
    "data.missing/gone": ("Expected a data file at {path}, found: {reason}.", "Choose the file again."),
    "data.missing/path": (
        "Expected a data file that can be read ({accepted}; text as UTF-8) at {path}, found none.",
        "Check the path.",
    ),
    "data.missing/refused": (
        "Expected a data file that can be read ({accepted}; text as UTF-8) at {path}, found none.",
        "Check the path. Dropped here instead, a file is told what is wrong with it.",
    ),
    "data.mix/kinds": (
        "Expected parts of one kind, found {first} in {one} and {second} in {other}.",
        "Mix pairs with pairs, conversations with conversations, and raw text with raw text.",
    ),
    "data.mix/no_rows": (
        "Expected rows of {source} in the mixture, found that {weight:g} of its {usable:,} are none.",
        "Choose a larger weight for it, or leave it out.",
    ),
    "data.mix/none": ("Expected files to mix, found none.", "Choose two files or more."),
    "data.mix/weight": (
        "Expected a weight above 0 and at most {most:g} for {source}, found {weight:g}.",
        "Choose how often its rows are to be seen in one epoch: 1 is once, 0.5 is every second row.",
    ),
    "data.no_fix": ("Expected findings with a safe fix, found {named}.", "Change these rows by hand."),
    "data.no_held_out": ("Expected held-out rows, found none in this run.", ""),
    "data.no_rows": ("Expected rows to train on, found none.", "Choose another layout or mapping."),
    "data.no_template": (
        "Expected a chat template in the model, found none.",
        "Choose the template auto or ChatML, or an instruct model.",
    ),
    "data.nothing/length": (
        "Expected tokens to train on, found none within {max_length:,} tokens of any row.",
        "Allow longer examples, or choose other columns.",
    ),
    "data.nothing/made": ("Expected rows for {name}, found none.", "Choose another file or selection."),
    "data.nothing/no_turn": (
        "Expected tokens to train on, found none: no row holds a turn of the kind that is to be learned.",
        "Choose another thing to learn, or other columns.",
    ),
    "data.no_row": ("Expected a row {row:,} in {name}, found none.", "Choose another row, or look at the table anew."),
    "data.nothing/rows": (
        (
            "Expected rows to train on, found none among the {rows:,} of {name}: row {row:,}: {text}. Its "
            "columns: {columns}."
        ),
        "Choose another layout or other columns.",
    ),
    "data.nothing/template": (
        "Expected rows to train on, found none that the template takes: {why}",
        "Choose another template or another layout.",
    ),
    "data.nothing_trained/cut": (
        "Expected tokens to train on, found none in {rows} rows cut at {max_length} tokens.",
        "Choose another mapping, a longer 'Max length', or learn from everything.",
    ),
    "data.nothing_trained/mapping": (
        "Expected trained tokens in {path}, found none under this mapping and length.",
        "Choose another mapping, or a longer 'Max length'.",
    ),
    "data.nothing_usable": ("Expected rows to train on in {name}, found {rows} rows and none usable.", "{hint}"),
    "data.ours/folder": (
        "Expected a data file outside of Luthier's folder {folder} (or in its data/ or uploads/), found {path}.",
        "Copy it to another folder and choose it there.",
    ),
    "data.ours/own_file": (
        "Expected a data file, found one of Luthier's own: {path}.",
        "Choose a file outside of Luthier's folder.",
    ),
    "data.pairs_equal": (
        "Expected pairs of a better and a worse answer in {name}, found {rows:,} whose two answers are the same.",
        "Choose which columns are chosen and rejected, or the method SFT.",
    ),
    "data.parquet": ("Expected {expected}, found {found}: {name}.", "Save it again."),
    "data.sparse": (
        "Expected a whole file, found one with large holes in it (a sparse file): {path}.",
        "If it is a download that was cut off, fetch it again.",
    ),
    "data.stopped": ("Reading {about} was stopped.", "Choose it again to go on."),
    "data.swells": (
        "Expected rows of at most {most:,.1f} GiB, found more: the file swells as it is read.",
        "Save fewer rows, or take repeated texts out of them.",
    ),
    "data.system": (
        "Expected a data file, found one that the system makes as it is read: {path}.",
        "Choose another file.",
    ),
    "data.template": ("The chat template refuses this row: {reason}.", "Choose the template ChatML."),
    "data.template_answers/left_out": (
        "Expected a chat template that writes the answer, found one that leaves it out.",
        "Choose the template ChatML, or another model.",
    ),
    "data.template_answers/not_once": (
        "Expected a chat template that writes each answer once, found one that {what}.",
        "Choose the template ChatML, or another model.",
    ),
    "data.template_answers/only_thoughts": (
        (
            "Expected a chat template that writes the {name} answer, found one that leaves all of it out (it "
            "holds nothing but thoughts)."
        ),
        "Choose the template ChatML, or leave this row out.",
    ),
    "data.template_memory": (
        "Expected a chat template that needs less than {megabytes} MB, found one that needs more.",
        "Choose the template ChatML, or another model.",
    ),
    "data.template_size": (
        "Expected a chat template that writes a row, found one that writes {count:,} characters.",
        "Choose the template ChatML, or another model.",
    ),
    "data.template_time": (
        "Expected a chat template that is done with a row within {seconds:g} seconds, found one still at work.",
        "Choose the template ChatML, or another model.",
    ),
    "data.time/beginning": (
        "Expected to read the beginning of {name} within {seconds:g} seconds, found a disk that is slower.",
        "Have the whole file checked, or copy it to another disk.",
    ),
    "data.time/child": (
        (
            "Expected the {name} to be done with {about} within {seconds:g} seconds, found it still at work: "
            "it was ended."
        ),
        "Choose a smaller file or another template.",
    ),
    "data.tokenizer": ("Expected a tokenizer in {folder}, found: {found}.", "Choose another model."),
    "data.tokenizer_slow": (
        "Expected a tokenizer.json in {folder}, found a tokenizer without one.",
        "Choose a model that brings a tokenizer.json.",
    ),
    "data.tree": (
        (
            "Expected a whole conversation in each row, found single messages of a tree (columns message_id, "
            "parent_id, role, text): what a message answers stands in another row."
        ),
        "Take a version of the data set with whole conversations, or put each thread into one row of messages.",
    ),
    "data.unexpected": (
        "Expected{of} data that can be read, found something else ({found}).",
        "Choose another file or template.",
    ),
    "data.unreadable/permission": (
        "Expected a file that can be read at {path}, found: {reason}.",
        "Change its permissions, or choose another file.",
    ),
    "data.unreadable/rows": (
        "Expected {how} in {name}, found at row {row:,}: {fault}.",
        "Save the file again as JSONL, JSON or CSV.",
    ),
    "data.upload_gone": ("Expected the uploaded file, found it gone.", "Choose the file again."),
    "doctor.stale": ("Expected a finding of these rows, found that they changed since.", "Examine them again."),
    "mix.weight": ("Expected a weight above 0 for {name}, found {found}.", "1 takes each row once."),
    "question.answer": (
        "Expected a conversation that ends with the answer to be scored, found one that ends with {role}.",
        "Write the answer below its question.",
    ),
    "question.empty": ("Expected a text, found none.", "Write one."),
    "question.long/characters": (
        "Expected a question of at most {most:,} tokens here, found {count:,} characters.",
        "Ask a shorter one.",
    ),
    "question.long/tokens": (
        "Expected a question of less than {most:,} tokens here, found {count:,}.",
        "Ask a shorter one.",
    ),
}

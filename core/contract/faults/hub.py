"""What is said of the hub: models and data sets that are fetched: message and hint by key."""

HUB = {
    "hub.bad_id": ("Expected a hub id such as owner/name, found {name!r}.", "Check the spelling."),
    "hub.elsewhere": (
        "Expected the files of {name} within it, found that its card points at files elsewhere.",
        "Choose another data set.",
    ),
    "hub.gated/data": (
        "{name} is given only to people who accepted its terms, and no such token was found.",
        "Accept the terms at {endpoint}/datasets/{name}, then run: hf auth login",
    ),
    "hub.gated/model": (
        "{name} is given only to people who accepted its terms, and no such token was found.",
        "Accept the terms at {endpoint}/{name}, then run: hf auth login",
    ),
    "hub.login/offline": (
        "Expected to ask the hub about the token, but HF_HUB_OFFLINE is set.",
        "Unset HF_HUB_OFFLINE.",
    ),
    "hub.login/unknown": (
        "The hub knows no person's token that is written like this.",
        "Copy it again from {endpoint}/settings/tokens",
    ),
    "hub.login/unreachable": (
        "Expected an answer from {endpoint} about the token, found none ({kind}).",
        "Check the network, then give the token again; nothing was kept.",
    ),
    "hub.missing/data": (
        "Expected a data set {name!r} on the hub, found none (or it is private).",
        "Check the spelling (owner/name); for a private data set run: hf auth login",
    ),
    "hub.missing/model": (
        "Expected a model {name!r} on the hub, found none (or it is private).",
        "Check the spelling (owner/name); for a private model run: hf auth login",
    ),
    "hub.name": ("Expected the name of a data set, found none.", "Write it as owner/name."),
    "hub.no_choice": ("Expected {what} of {name}, found {found}. It has: {listed}.", "Choose one of these."),
    "hub.no_file": ("{name} lacks a file that is needed (config.json).", "Choose another model."),
    "hub.no_revision/not_there": (
        "Expected {name}{at} on the hub, found no such revision.",
        "Leave the revision empty.",
    ),
    "hub.no_revision/unknown": (
        "Expected a branch, tag or commit of {name}, found {revision!r}.",
        "Leave the revision empty.",
    ),
    "hub.no_table/reader": (
        "Expected tables of text in {name} (JSON, CSV, Parquet, Arrow, text), found {reader}.",
        "Choose another data set.",
    ),
    "hub.no_table/unreadable": (
        "Expected rows in {name}, found files that cannot be read as a table ({kind}).",
        "Choose another data set, subset or split.",
    ),
    "hub.not_safetensors": (
        "Expected safetensors files in {id}, found {found}.",
        "Choose a model that offers safetensors; other formats can run code or are made for other programs.",
    ),
    "hub.offline/data": ("Expected to reach the hub for {name}, but HF_HUB_OFFLINE is set.", "Unset HF_HUB_OFFLINE."),
    "hub.offline/model": (
        "Expected {name}{at} in the cache, since HF_HUB_OFFLINE is set; found no whole copy.",
        "Unset HF_HUB_OFFLINE to fetch it, or choose a model that is cached.",
    ),
    "hub.offline/upload": ("Expected to reach the hub for {name}, but HF_HUB_OFFLINE is set.", "Unset HF_HUB_OFFLINE."),
    "hub.other_weights": (
        "Expected {name} to hold no other weights, found {found}, which would be loaded in place of these.",
        "Choose another name, or delete them there first.",
    ),
    "hub.public": (
        "Expected a private repository at {name}, found a public one.",
        "Choose another name, or say that it is to be public.",
    ),
    "hub.refused": ("The hub refused {name} (HTTP {status}).", "Renew the token with: hf auth login"),
    "hub.rows": ("Expected a number of rows from 1 to {most:,}, found {found}.", ""),
    "hub.stopped": ("The download of {name} was stopped.", "Start it again to go on."),
    "hub.stopped/upload": (
        "Sending to {name} was stopped.",
        "Start it again to go on: what was sent whole is not sent twice.",
    ),
    "hub.token/none": (
        "Expected a token with the right to write to {name}, found none.",
        "Make one at {endpoint}/settings/tokens and give it when asked, or run: hf auth login",
    ),
    "hub.token/refused": (
        "The hub refused the token (HTTP {status}).",
        "Make another one, with the right to write, at {endpoint}/settings/tokens",
    ),
    "hub.unreachable/data": (
        "Expected an answer from {endpoint} about {name}, found none ({kind}).",
        "Check the network, or choose a file of your own.",
    ),
    "hub.unreachable/no_answer": (
        "Expected an answer from {endpoint} about {name}, found none ({kind}).",
        "Check the network; cached models, local folders and the starter work without it.",
    ),
    "hub.unreachable/upload": (
        "Expected an answer from {endpoint} about {name}, found none ({kind}).",
        "Check the network, then send it again: what was sent whole is not sent twice.",
    ),
    "hub.unreachable/upload_status": (
        "Expected {endpoint} to take {name}, found HTTP {status}.",
        "Send it again later: what was sent whole is not sent twice.",
    ),
    "hub.write": (
        "The hub does not let this token write to {name} (HTTP {status}).",
        "Take a name under your own user, or under an organisation of yours, and a token with the right to write.",
    ),
    "hub.unreachable/status": (
        "Expected an answer from {endpoint} about {name}, found HTTP {status}.",
        "Try again later; cached models work meanwhile.",
    ),
}

"""What pages say where the faults of ``core.contract.faults.hub`` come up."""

from studio.words.faults.kinds import Words

HUB: dict[str, Words] = {
    # names and what they lead to
    "hub.bad_id": (
        "{name!r} cannot be a name on the Hugging Face Hub: they look like owner/name.",
        "Check the spelling.",
    ),
    "hub.name": ("Which data set? Its name is missing.", "Type it under Name, as owner/name, then press Download."),
    "hub.rows": (
        "How many rows do you want at most? A number from 1 to {most:,} is needed, not {found}.",
        "Type it under “Max rows”, then press Download.",
    ),
    "hub.missing/data": (
        "There is no data set {name!r} on the Hugging Face Hub, or it is private.",
        "Check the spelling (owner/name). For a private one enter your token under Settings first.",
    ),
    "hub.missing/model": (
        "There is no model {name!r} on the Hugging Face Hub, or it is private.",
        "Check the spelling (owner/name). For a private one enter your token under Settings first.",
    ),
    "hub.no_choice": (
        "Which part of {name} do you want? It needs {what}, and has: {listed}.",
        "Type one of these under Subset or Split, then press Download.",
    ),
    "hub.no_file": (
        "{name} cannot be trained: it lacks the file config.json, which says how the model is built.",
        "Choose another model.",
    ),
    "hub.no_revision/not_there": (
        "There is no {name}{at} on the Hugging Face Hub.",
        "Leave the revision empty to take the newest one.",
    ),
    "hub.no_revision/unknown": (
        "{revision!r} is no branch, tag or commit of {name}.",
        "Leave the revision empty to take the newest one.",
    ),
    "hub.elsewhere": (
        "{name} does not hold all of its files itself: its card points at places elsewhere, which are not read.",
        "Choose another data set.",
    ),
    "hub.no_table/reader": (
        "{name} holds no tables of text but files of another kind ({reader}). Luthier reads JSON, CSV, Parquet, Arrow "
        "and text.",
        "Choose another data set.",
    ),
    "hub.no_table/unreadable": (
        "The files of {name} cannot be read as a table of rows.",
        "Choose another data set, or another subset or split of it.",
    ),
    "hub.not_safetensors": (
        "Luthier trains models whose weights are safetensors files, and {id} has {found}. Other formats can run code, "
        "or are made for other programs.",
        "Choose a model that offers safetensors.",
    ),
    # who may have it
    "hub.gated/data": (
        "{name} is given only to people who have accepted its terms, and this machine is not logged in as one of them.",
        "Accept the terms at {endpoint}/datasets/{name}, then enter your token under Settings.",
    ),
    "hub.gated/model": (
        "{name} is given only to people who have accepted its terms, and this machine is not logged in as one of them.",
        "Accept the terms at {endpoint}/{name}, then enter your token under Settings.",
    ),
    "hub.refused": (
        "The Hugging Face Hub refused to give {name} to the login of this machine (HTTP {status}).",
        "Enter a new token under Settings.",
    ),
    "hub.login/unknown": (
        "The Hugging Face Hub does not know this token.",
        "Copy it again from {endpoint}/settings/tokens; it has to be your own, not that of an organization.",
    ),
    # no way to the hub
    "hub.login/offline": (
        "The token cannot be checked: Luthier was told not to use the network (HF_HUB_OFFLINE is set).",
        "Unset HF_HUB_OFFLINE and start Luthier again, then save the token.",
    ),
    "hub.login/unreachable": (
        "There was no answer from {endpoint} about the token, so it was not saved.",
        "Check the network, then save it again.",
    ),
    "hub.offline/data": (
        "{name} cannot be fetched: Luthier was told not to use the network (HF_HUB_OFFLINE is set).",
        "Unset HF_HUB_OFFLINE and start Luthier again, or choose a file of your own.",
    ),
    "hub.offline/model": (
        "There is no whole copy of {name}{at} on this machine, and Luthier was told not to use the network "
        "(HF_HUB_OFFLINE is set).",
        "Choose a model that is on this machine; or unset HF_HUB_OFFLINE and start Luthier again to fetch it.",
    ),
    "hub.offline/upload": (
        "{name} cannot be reached: Luthier was told not to use the network (HF_HUB_OFFLINE is set).",
        "Unset HF_HUB_OFFLINE and start Luthier again, then upload.",
    ),
    "hub.unreachable/data": (
        "There was no answer from {endpoint} about {name}.",
        "Check the network and press Download again, or choose a file of your own.",
    ),
    "hub.unreachable/no_answer": (
        "There was no answer from {endpoint} about {name}.",
        "Check the network. Models on this machine, folders of your own and the starter model work without it.",
    ),
    "hub.unreachable/status": (
        "{endpoint} could not answer about {name} just now (HTTP {status}).",
        "Try again later. Models on this machine work meanwhile.",
    ),
    "hub.stopped": ("The download of {name} was stopped.", "Start it again: it goes on where it stood."),
    # sending
    "hub.unreachable/upload": (
        "There was no answer from {endpoint} about {name}.",
        "Check the network, then press Upload again: what was sent whole is not sent twice.",
    ),
    "hub.unreachable/upload_status": (
        "{endpoint} did not take {name} just now (HTTP {status}).",
        "Press Upload again later: what was sent whole is not sent twice.",
    ),
    "hub.stopped/upload": (
        "Sending to {name} was stopped.",
        "Press Upload to go on: what was sent whole is not sent twice.",
    ),
    "hub.token/none": (
        "Uploading to {name} needs a token with write access.",
        "Make one at {endpoint}/settings/tokens and put it under Token, or save it under Settings.",
    ),
    "hub.token/refused": (
        "The Hugging Face Hub refused the token (HTTP {status}).",
        "Make another one with write access at {endpoint}/settings/tokens, and put it under Token.",
    ),
    "hub.write": (
        "This token has no write access to {name} (HTTP {status}).",
        "Under Repository take a name under your own user, or under an organization of yours, and a token with "
        "write access.",
    ),
    "hub.public": (
        "{name} is there already, and everybody can see it; you asked for a private one.",
        "Choose another name under Repository, or switch Private off.",
    ),
    "hub.other_weights": (
        "{name} holds other weights already, which would be loaded in place of these: {found}.",
        "Choose another name under Repository, or delete them there first.",
    ),
}

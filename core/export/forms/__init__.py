"""One file a form: what it writes into the draft of an export, and the room that it needs."""

"""What a worker says and hears: events out, commands in, a full disk waited out; and its readings."""

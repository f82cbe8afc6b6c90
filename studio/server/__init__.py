"""The studio as a process: who may come in, what is served, and the pages put together."""

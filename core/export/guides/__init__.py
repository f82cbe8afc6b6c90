"""How an export is used: Ollama's Modelfile with its template, and the commands of each runtime."""

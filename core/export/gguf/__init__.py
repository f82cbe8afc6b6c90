"""GGUF: files for llama.cpp, Ollama and LM Studio, written from base shards and adapter without a folder between."""

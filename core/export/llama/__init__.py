"""LLAMA: llama.cpp in a child process: what a GGUF file tokenises, answers and loses, as people's programs do it."""

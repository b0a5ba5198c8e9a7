"""Running turns: the prompt, the adapters, the runner."""

"""A language model at the terminal: chat, completion, scoring."""

"""Log pools of a language model's personas: who gains, and what suppression costs."""

"""Other people's files: bytes in, plain arrays out; what is malformed is refused by name."""

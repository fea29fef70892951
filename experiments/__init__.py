"""One runnable experiment per paper."""

"""Host simulators: seeded parallel collection, batched evaluation, rendering."""

"""Votes of a model that judges answers, and whether it prefers its own beyond being a poor judge.

A judge J compares its own answer with that of a reference R (`votes`), on items that J got wrong
and R right (`categories`). A proxy K that failed the same items is the baseline: only the excess of
"J votes for J" over "J votes for K" counts as self-preference (`baseline`). The definitions are
those of Roytburg et al., "Are LLM Evaluators Really Narcissists? Sanity Checking Self-Preference
Evaluations", arXiv:2601.22548.
"""

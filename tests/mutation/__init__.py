"""Mutation score of the kernel's rules: one small change at a time, and the tests have to notice."""

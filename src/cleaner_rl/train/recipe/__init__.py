"""Describes a training run as typed settings.

- `settings` holds the recipe and every one of its sections; `enums` holds the values that a setting can choose from.
- `load` reads a recipe from YAML and `--set` options, and names what is wrong with it.
- `stages` cuts a recipe into its stages and filters tasks by pass rate.
"""

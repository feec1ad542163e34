"""Trains a recipe: `python -m benchmarks.lab.local RECIPE`."""

from __future__ import annotations

import asyncio
import sys

import torch

from benchmarks.lab.local.trainer import LocalTrainer
from cleaner_rl.train import read_recipe

torch.set_num_threads(1)
asyncio.run(LocalTrainer(read_recipe(sys.argv[1])).train())

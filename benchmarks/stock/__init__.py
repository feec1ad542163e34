"""Our agent loop beside verl's own tool loop, over the same work, in one run of training.

Steps take turns: an odd one is verl's, with its loop, its manager and its reward workers; the even one after it is
ours, on the same prompts. The learning rate is 0, so both meet the same weights, and decoding is greedy, so both should
give the same batch. Nothing else changes between them, and what the machine does meanwhile hits both.

- `parts`: what verl's processes load: who takes which step, the sandbox as a tool of verl's, the grader as its reward.
- `python -m benchmarks.stock FOLDER`: the run, on a folder of `benchmarks.toy`, and its figures.
"""

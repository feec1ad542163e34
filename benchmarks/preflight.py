"""Runs preflights on the real stack, each with one fault, then clean ones: `python -m benchmarks.preflight --json`.

Is each of six faults found, by the finding that has its name, and do runs without a fault stay green? The faults are
injected into the processes of the run (`preflight_faults`), but for the chat template, which is another model's folder.
The recipe is `recipes/tiny-cpu.yaml` without its cold start, with SAAR and RoC, 4 prompts and 8 rollouts, in the
smallest toy environment. The turns of its model begin with a newline, which a template can trim.

Needs the engines; a preflight takes some minutes on two cores. Runs that are finished in `--folder` aren't repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.preflight_faults import FAULT
from benchmarks.record import commit, save

ROOT = Path(__file__).parents[1]
FAULTS = {
    "mask shifted by one": "masks",
    "edits not re-scored": "re-scoring",
    "trimming template": "chat template",
    "weights not updated": "weights",
    "slow sandbox": "sandbox",
    "row of a fault": "faults",
}
"""By fault: the finding that has to be red."""
TRIMS = ("(message.content or '')", "(message.content or '') | trim")
"""What the chat template puts in of a turn, and what one does that trims."""
SETTINGS = (
    *(
        "cold_start=null",
        "tasks.held_out=[]",
        "budget.prompt_tokens=256",
        "verl.trainer.n_gpus_per_node=1",
        "run.router=verl",
    ),
    *(
        "batch.prompts=4",
        "batch.mini_batch=4",
        "batch.rollouts=4",
        "verl.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    ),
    *("method=saar+roc", "roc.sample=8", "roc.min_positive=1", "roc.min_negative=1"),
)
LIMIT_SECONDS = 2_400


def preflight(world: Path, folder: Path, fault: str = "", settings: Sequence[str] = ()) -> dict[str, Any]:
    """Run `cleaner train --preflight` in a folder, and return what it found and how long it took."""
    kept = folder / "found.json"
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text())
        return found
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text("import benchmarks.preflight_faults\n")
    chosen = [f"--set={each}" for each in (*SETTINGS, f"run.folder={folder}", *settings)]
    recipe = str(ROOT / "recipes" / "tiny-cpu.yaml")
    program = [sys.executable, "-c", "from cleaner_rl.cli import main; main()", "train", recipe, "--preflight"]
    path = os.pathsep.join([str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"TOY": str(world), "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", FAULT: fault}
    begun = time.monotonic()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*program, *chosen, "--json"],
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            shown, _ = process.communicate(timeout=LIMIT_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
    if not shown:
        raise RuntimeError(f"the preflight ended with {process.returncode} and found nothing; read {folder / 'log'}")
    took = time.monotonic() - begun
    found = {"commit": commit(), "seconds": took, "exit_code": process.returncode, **json.loads(shown)}
    kept.write_text(json.dumps(found, indent=2))
    return found


def trimming(world: Path, folder: Path) -> list[str]:
    """Settings with a model whose chat template trims the turns."""
    from shutil import copytree

    model = copytree(world / "model", folder / "model", dirs_exist_ok=True)
    template = model / "chat_template.jinja"
    text = template.read_text(encoding="utf-8")
    assert TRIMS[0] in text
    template.write_text(text.replace(*TRIMS), encoding="utf-8")
    return [f"model.path={model}"]


def red(found: dict[str, Any]) -> list[str]:
    """The names of the findings that failed."""
    return [each["name"] for each in found["findings"] if each["verdict"] == "failed"]


def measure(folder: Path, clean: int, faults: Sequence[str]) -> dict[str, Any]:
    """Run one preflight per fault, then clean ones."""
    from benchmarks.toy.smallest import make

    world = folder / "world"
    if not (world / "model").exists():
        make(world, opening="\n")
    runs: list[dict[str, Any]] = []
    injected: dict[str, Any] = {}
    for fault in faults:
        own = folder / fault.replace(" ", "-")
        found = preflight(world, own, fault, trimming(world, own) if fault == "trimming template" else ())
        name = FAULTS[fault]
        verdict = next(each["verdict"] for each in found["findings"] if each["name"] == name)
        injected[fault] = {"finding": name, "verdict": verdict, "red": red(found), "exit_code": found["exit_code"]}
        runs.append(found)
        _tell(fault, found)
    for number in range(clean):
        runs.append(preflight(world, folder / f"clean-{number}"))
        _tell(f"clean {number}", runs[-1])
    green = [found for found in runs[len(faults) :] if found["verdict"] == "ok"]
    return {
        "faults": injected,
        "faults_found": sum(each["verdict"] == "failed" for each in injected.values()),
        "clean": clean,
        "clean_green": len(green),
        "clean_red": sorted({name for found in runs[len(faults) :] for name in red(found)}),
        "seconds": median(found["seconds"] for found in runs),
        "commits": sorted({found["commit"] for found in runs}),
    }


def _tell(name: str, found: dict[str, Any]) -> None:
    sys.stderr.write(f"{name}: {found['verdict']} {red(found)}, {found['seconds']:.0f} s\n")


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/cleaner-rl-preflight"), help="not below /tmp")
    parser.add_argument("--clean", type=int, default=10, help="preflights without a fault")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one; may be given again")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    figures = measure(given.folder.resolve(), given.clean, given.fault or list(FAULTS))
    if given.save is not None:
        save(given.save, figures, {"clean": given.clean, "settings": list(SETTINGS)})
    print(json.dumps(figures) if given.json else json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()

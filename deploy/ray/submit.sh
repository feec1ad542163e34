#!/usr/bin/env bash
# Trains a recipe on a Ray cluster that is there:
#   bash deploy/ray/submit.sh http://HEAD:8265 recipes/rstar2-14b.yaml SANDBOXES [--set KEY=VALUE …]
# SANDBOXES are addresses of sandbox nodes with commas between them (http://HOST:8089, dns://NAME:8089), or `ray:` for nodes
# that `cleaner sandbox up --ray` started on the cluster itself; their token is the first line of $TOKEN_FILE. Call it where
# data and runs lie, in a folder that all machines have under the same path, as they have $TOKEN_FILE.
# On a cluster that asks for a token, call it with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH.
# A cold start runs on the head, which needs the recipe's trainer.n_gpus_per_node GPUs for it.
set -euo pipefail
usage='usage: submit.sh ADDRESS RECIPE SANDBOXES [--set KEY=VALUE …]'
address=${1:?$usage} recipe=${2:?$usage} sandboxes=${3:?$usage}
shift 3
ray job submit --address "$address" --no-wait -- env --chdir="$PWD" \
    cleaner train "$recipe" --set "sandbox.addresses=[\"${sandboxes//,/\", \"}\"]" \
    --set "sandbox.token_file=${TOKEN_FILE:?a file with the token of the sandbox nodes and nothing else}" "$@"

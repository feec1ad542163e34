#!/usr/bin/env bash
# Starts Ray on one of several machines, as training across them needs it: first on the head, then on each other machine.
#   bash deploy/ray/start.sh head ADDRESS [OPTION …]
#   bash deploy/ray/start.sh HEAD-ADDRESS ADDRESS [OPTION …]
# ADDRESS is the machine's own, in the network that the machines share; options are those of `ray start`.
# $RAY_AUTH_TOKEN_PATH is a file with one secret, the same on all machines, which only you can read:
#   umask 077; openssl rand -hex 32 > ray-token; export RAY_AUTH_TOKEN_PATH=$PWD/ray-token
# Then, on the head: RAY_ADDRESS=ADDRESS:6379 RAY_AUTH_MODE=token cleaner train RECIPE …
set -euo pipefail
usage='usage: start.sh head|HEAD-ADDRESS ADDRESS [OPTION …]'
head=${1:?$usage} address=${2:?$usage}
shift 2
: "${RAY_AUTH_TOKEN_PATH:?a file with the secret of the cluster}"
# Said here and to `cleaner train`: a token that an earlier run has left in ~/.ray would turn it on for one side only.
export RAY_AUTH_MODE=token
# By Ray's defaults it takes a minute until a machine that doesn't answer counts as lost.
export RAY_health_check_timeout_ms=5000 RAY_health_check_failure_threshold=3
# gloo would look for the address that the machine's name stands for, which need not be in this network.
GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-$(ip -o addr show | awk -v own="$address" '{ split($4, part, "/") } part[1] == own { print $2; exit }')}
export GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:?no network of this machine has the address $address}
if [ "$head" = head ]; then
    role=(--head --port=6379)
else
    role=("--address=$head:6379")
fi
exec ray start "${role[@]}" "--node-ip-address=$address" --disable-usage-stats "$@"

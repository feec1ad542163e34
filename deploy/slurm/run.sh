# Sourced by the .sbatch files, which say what there is: GPU nodes first, machines for the sandbox second.
#
# Sandbox nodes serve on the second part, with a token made for this job. On several GPU nodes a Ray cluster is started
# first; on one, verl starts its own. The job's environment must have `cleaner` and `ray` on its path.
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
recipe=${1:?usage: sbatch FILE.sbatch RECIPE [--set KEY=VALUE …]}
shift
port=8089
folder=$(mktemp -d "$PWD/.cleaner-$SLURM_JOB_ID-XXXXXX")
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT

umask 077
token=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
printf '%s\n' "$token" >"$folder/token"
printf '[tokens.training]\ntoken = "%s"\n' "$token" >"$folder/tokens.toml"

mapfile -t sandboxes < <(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_1")
mapfile -t trainers < <(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_0")
# Told to each srun: since Slurm 22.05 none takes the job's --cpus-per-task by itself.
sandbox_cores=$SLURM_CPUS_PER_TASK_HET_GROUP_1
trainer_cores=$SLURM_CPUS_PER_TASK_HET_GROUP_0
srun --het-group=1 --ntasks="${#sandboxes[@]}" --cpus-per-task="$sandbox_cores" \
    cleaner sandbox serve --host 0.0.0.0 --port "$port" --slots $((2 * sandbox_cores)) --token-file "$folder/tokens.toml" &

addresses=$(printf ', "http://%s:'"$port"'"' "${sandboxes[@]}")
head=${trainers[0]}
if [ "${#trainers[@]}" -gt 1 ]; then
    ip=$(srun --het-group=0 --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')
    export RAY_ADDRESS="$ip:6379"
    # Whoever reaches Ray's ports can run programs; with a token of this job, only the job can.
    od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >"$folder/ray-token"
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$folder/ray-token"
    # By Ray's defaults it takes a minute until a machine that doesn't answer counts as lost.
    export RAY_health_check_timeout_ms=5000 RAY_health_check_failure_threshold=3
    srun --het-group=0 --nodes=1 --ntasks=1 --cpus-per-task="$trainer_cores" --nodelist="$head" \
        ray start --head --node-ip-address="$ip" --port=6379 --block &
    others=$((${#trainers[@]} - 1))
    srun --het-group=0 --nodes="$others" --ntasks="$others" --cpus-per-task="$trainer_cores" --exclude="$head" \
        ray start --address="$RAY_ADDRESS" --block &
    # Until every node is there; a job that waits for a lost one ends by its time limit.
    until [ "$(srun --overlap --het-group=0 --nodes=1 --ntasks=1 --nodelist="$head" ray list nodes --format=json \
        --filter state=ALIVE 2>/dev/null | grep -c '"node_id"')" = "${#trainers[@]}" ]; do
        sleep 5
    done
fi
srun --overlap --het-group=0 --nodes=1 --ntasks=1 --cpus-per-task="$trainer_cores" --nodelist="$head" \
    cleaner train "$recipe" --set "sandbox.addresses=[${addresses#, }]" --set "sandbox.token_file=$folder/token" "$@"

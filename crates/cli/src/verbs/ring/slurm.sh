#!/bin/bash
# Written by `atoll ring slurm`: a ring of Atoll on the nodes of this job, beside a command.
#SBATCH --nodes=%NODES%
#SBATCH --job-name=atoll
# The shell hears a minute before the time is over that it is.
#SBATCH --signal=B:TERM@60
%OPTIONS%
set -u
atoll=%PROGRAM%
folder=%FOLDER%
port=%PORT%
token=$folder/token
users=%USERS%

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
nodes=$(for host in $hosts; do echo "$host:$port"; done | paste -sd,)
export ATOLL_STORE="ring://$nodes/?token-file=$token"

# The token is made here once, for its owner alone, so that no two nodes make one each.
(umask 077 && mkdir -p "$folder")
if [ ! -s "$token" ]; then
    (umask 077 && head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n' > "$token.new") && mv "$token.new" "$token"
fi

# One node of the ring on each node of the job. Its number is its place in the list, and its folder has that number.
# What the command runs shares the processors with it.
export atoll folder port token users nodes
srun --overlap --nodes=%NODES% --ntasks=%NODES% --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 \
    --output="$folder/node-%n.log" bash -c '
    unset ATOLL_STORE
    name=$SLURMD_NODENAME
    number=$(tr , "\n" <<< "$nodes" | grep -nxF "$name:$port" | cut -d: -f1)
    exec "$atoll" ring serve --listen "0.0.0.0:$port" --announce "$name:$port" --nodes "$nodes"%SHAPE% \
        --token-file "$token" ${users:+--acl-file "$users"} --store "$folder/node-$number" --durability %DURABILITY%' &
ring=$!
command=

# The nodes put everything on the disk and end. They are the first step of this job; srun itself would kill them.
end_ring() {
    trap - EXIT
    scancel --signal=TERM "$SLURM_JOB_ID.0"
    wait "$ring" || echo "a node of the ring did not end as it should: see $folder/node-*.log" >&2
}
stop() {
    [ -z "$command" ] || { kill -TERM "$command" 2> /dev/null; wait "$command"; }
    end_ring
    exit 143
}
trap end_ring EXIT
trap stop TERM INT

tries=0
until "$atoll" ring status > /dev/null 2>&1; do
    tries=$((tries + 1))
    if ! kill -0 "$ring" 2> /dev/null || [ "$tries" -gt 240 ]; then
        echo "the ring does not serve; its nodes say:" >&2
        tail -n 5 "$folder"/node-*.log >&2
        exit 1
    fi
    sleep 0.5
done

# In the background, so that the shell hears signals meanwhile.
%COMMAND% &
command=$!
wait "$command"
ended=$?
command=
exit "$ended"

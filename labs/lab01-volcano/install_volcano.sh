#!/usr/bin/env bash
# Sets up a scheduler that is compatible with Volcano on the cluster of your kubeconfig: Volcano's custom resources in a
# short form (the fields that phalanx reads, checked less than by Volcano itself), and phalanx in its place, which schedules
# pods with `schedulerName: volcano` and runs Volcano's Jobs.
#
#   ./install_volcano.sh            the scheduler runs here, in the background; its log and its process id are in $LAB_HOME
#   ./install_volcano.sh --stop     ends it; custom resources and jobs stay
set -euo pipefail

lab=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
manifest=$lab/../../examples/kubernetes/volcano.yaml
home=${LAB_HOME:-$HOME/.cache/phalanx/lab01}
pid_file=$home/scheduler.pid
log=$home/scheduler.log

die() {
    printf 'install_volcano.sh: %s\n' "$*" >&2
    exit 1
}

is_running() {
    [ -e "$pid_file" ] && kill -0 "$(cat "$pid_file")" 2>/dev/null
}

if [ "${1:-}" = --stop ]; then
    is_running || die "no scheduler of this lab runs ($pid_file)"
    pid=$(cat "$pid_file")
    kill "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    rm -f "$pid_file"
    echo "the scheduler has ended; jobs and custom resources are still there"
    exit
fi
[ $# -eq 0 ] || die "expected no argument or --stop, got $1"

command -v kubectl >/dev/null || die "kubectl is not on PATH: https://kubernetes.io/docs/tasks/tools"
command -v phalanx >/dev/null || die "phalanx is not on PATH: pip install $(readlink -f -- "$lab/../..")"
! is_running || die "the scheduler of this lab runs already, as process $(cat "$pid_file")"
if kubectl get deployment --namespace volcano-system volcano-scheduler >/dev/null 2>&1; then
    die "Volcano itself runs in this cluster: two schedulers of one name would bind the same pods"
fi

kubectl apply --filename "$manifest"
kubectl wait --for=condition=Established --timeout=60s \
    crd/jobs.batch.volcano.sh crd/podgroups.scheduling.volcano.sh crd/queues.scheduling.volcano.sh \
    crd/hypernodes.topology.volcano.sh

mkdir -p "$home"
nohup phalanx kube --scheduler-name volcano --policy volcano --volcano-jobs >"$log" 2>&1 </dev/null &
echo $! >"$pid_file"
for _ in $(seq 1200); do
    if grep -q '^scheduling ' "$log"; then
        cat "$log"
        exit
    fi
    is_running || die "the scheduler ended: $(cat "$log")"
    sleep 0.1
done
die "the scheduler was not ready after two minutes; its log is $log"

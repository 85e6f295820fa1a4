#!/usr/bin/env bash
# A cluster of Slurm on this machine, for tests: slurmctld and several slurmd, each on a host of its own. A host is a set
# of Linux name spaces: network, host name, processes, shared memory and /dev/shm. Nothing outside of DIRECTORY is written, and no
# service of the system is used or disturbed.
#
#	scripts/slurm.sh start DIRECTORY [NODES [PID]] # the hosts login, and n1 to nNODES (3) with 8 processors each; until the process ends
#	scripts/slurm.sh run DIRECTORY COMMAND...      # a command on the host login, such as srun -N 2 hostname
#	scripts/slurm.sh kill DIRECTORY NODE           # ends a node with all its processes, as a power failure does
#	scripts/slurm.sh boot DIRECTORY NODE           # starts it again
#	scripts/slurm.sh stop DIRECTORY                # ends all that start has started
#
# It needs root, iproute2, util-linux, and Debian's packages slurmctld, slurmd, slurm-client and munge, whose daemons
# needn't run. With status 77 it says that something is missing.
set -euo pipefail

usage() { sed -n '/^#\t/s/^#\t//p' "$0" >&2; exit 2; }
lacks() { echo "slurm.sh: $*" >&2; exit 77; }
[ $# -ge 2 ] || usage
action=$1 dir=$(realpath -m "$2")
shift 2
PATH=$PATH:/usr/sbin:/sbin

# The address of a host: login is 0, n1 is 1.
address() { echo "10.213.64.$((${1#n} + 10))"; }

# on HOST COMMAND... runs a command there. The name spaces are those of the host's first process.
on() {
	local host=$1
	shift
	nsenter --target "$(cat "$dir/$host.pid")" --net --uts --ipc --mount --pid "$@"
}

# boot HOST COMMAND... makes a host whose first process starts the command. Its end is that of all other processes there.
boot() {
	local host=$1 log=$dir/$1.log first
	shift
	rm -f "$dir/$host.up" "$dir/$host.cable"
	mkfifo "$dir/$host.up" "$dir/$host.cable"
	setsid unshare --net --uts --ipc --mount --pid --fork --kill-child --mount-proc bash -c '
		dir=$1 host=$2
		shift 2
		hostname "$host"
		mount -t tmpfs -o mode=1777 shm /dev/shm
		mount --bind "$dir/hosts" /etc/hosts
		ip link set lo up
		echo up >"$dir/$host.up"
		read -r _ <"$dir/$host.cable"
		"$@" &
		while :; do wait -n || [ -n "$(jobs -p)" ] || sleep 1; done' init "$dir" "$host" "$@" </dev/null >>"$log" 2>&1 &
	echo $! >"$dir/$host.unshare"
	timeout 20 cat "$dir/$host.up" >/dev/null || { cat "$log" >&2; lacks "no permission for name spaces"; }
	first=$(cat "/proc/$!/task/$!/children")
	echo ${first% } >"$dir/$host.pid"
}

# plug HOST ADDRESS gives a host its end of a cable to the switch, which is on the host login.
plug() {
	local host=$1 login
	login=$(cat "$dir/login.pid")
	ip link add "to-$host" netns "$login" type veth peer name eth0 netns "$(cat "$dir/$host.pid")"
	on login ip link set "to-$host" master switch up
	on "$host" ip addr add "$2/24" dev eth0
	on "$host" ip link set eth0 up
	echo >"$dir/$host.cable"
}

# node HOST boots a node.
node() {
	mkdir -p "$dir/spool.$1"
	boot "$1" slurmd -D -N "$1" -f "$dir/slurm.conf"
	plug "$1" "$(address "$1")"
}

# halt HOST ends a host, and waits until its first process has gone.
halt() {
	local pid
	pid=$(cat "$dir/$1.pid" 2>/dev/null) || return 0
	rm -f "$dir/$1.pid"
	if kill -KILL "$pid" 2>/dev/null; then
		while [ -d "/proc/$pid" ]; do sleep 0.02; done
	fi
	pid=$(cat "$dir/$1.unshare")
	while [ -d "/proc/$pid" ] && ! grep -q "^State:.Z" "/proc/$pid/status" 2>/dev/null; do sleep 0.02; done
}

start() {
	local nodes=${1:-3} n command
	[ "$(id -u)" = 0 ] || lacks "name spaces need root"
	for command in ip unshare nsenter slurmctld slurmd srun scontrol munged; do
		command -v $command >/dev/null || lacks "$command is missing (Debian: slurmctld slurmd slurm-client munge iproute2)"
	done
	mkdir -p "$dir/munge" "$dir/state"
	chmod 755 "$dir"
	chmod 700 "$dir/munge"
	(umask 077; head -c 1024 /dev/urandom >"$dir/munge/key")
	{
		echo "127.0.0.1 localhost"
		echo "$(address 0) login"
		for n in $(seq "$nodes"); do echo "$(address "$n") n$n"; done
	} >"$dir/hosts"
	cat >"$dir/slurm.conf" <<-END
		ClusterName=chorus
		SlurmctldHost=login
		SlurmUser=root
		SlurmdUser=root
		AuthType=auth/munge
		AuthInfo=socket=$dir/munge/socket,cred_expire=5
		StateSaveLocation=$dir/state
		SlurmdSpoolDir=$dir/spool.%n
		SlurmctldPidFile=$dir/slurmctld.pid
		SlurmdPidFile=$dir/spool.%n/slurmd.pid
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/none
		SelectType=select/cons_tres
		SelectTypeParameters=CR_Core
		SlurmdParameters=config_overrides
		MpiDefault=none
		ReturnToService=2
		SlurmdTimeout=6
		MessageTimeout=5
		KillWait=2
		SlurmdLogFile=$dir/spool.%n/log
		SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
		NodeName=n[1-$nodes] CPUs=8 State=UNKNOWN
		PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
	END
	# PMIx keeps files of a step in a directory that the hosts must not share.
	echo PMIxCliTmpDirBase=/dev/shm >"$dir/mpi.conf"
	trap stop ERR
	# The first process of the host starts munged, too: it serves all hosts, by a socket in a directory that they share.
	boot login bash -c 'munged --foreground --force --key-file="$1/munge/key" --socket="$1/munge/socket" \
		--pid-file="$1/munge/pid" --log-file="$1/munge/log" --seed-file="$1/munge/seed" & exec slurmctld -D -f "$1/slurm.conf"' \
		controller "$dir"
	on login ip link add switch type bridge
	on login ip addr add "$(address 0)/24" dev switch
	on login ip link set switch up
	echo >"$dir/login.cable"
	for n in $(seq 300); do # a node that finds no controller waits for seconds before it tries again
		run scontrol ping 2>/dev/null | grep -q "is UP" && break
		sleep 0.1
	done
	for n in $(seq "$nodes"); do node "n$n"; done
	for n in $(seq 300); do # 30 s
		[ "$(run sinfo --noheader --format='%t %D' 2>/dev/null)" = "idle $nodes" ] && watch "${2:-}" && {
			echo "ready: a controller and $nodes nodes; run a program there by: $0 run $dir srun PROGRAM" >&2
			return
		}
		sleep 0.1
	done
	tail -n 20 "$dir"/*.log >&2
	stop
	echo "slurm.sh: the nodes are not ready" >&2
	exit 1
}

# watch PID stops the cluster when a process has ended without doing so.
watch() {
	[ -n "$1" ] || return 0
	setsid bash -c 'while [ -d "/proc/$1" ] && [ -e "$2/login.pid" ]; do sleep 1; done; exec "$0" stop "$2"' "$(realpath "$0")" "$1" "$dir" \
		</dev/null >/dev/null 2>&1 &
}

# run keeps the working directory, which nsenter would change.
run() { SLURM_CONF=$dir/slurm.conf on login --wd="$PWD" "$@"; }

stop() {
	local file
	for file in "$dir"/n*.pid "$dir/login.pid"; do
		[ -e "$file" ] && halt "$(basename "$file" .pid)"
	done
	return 0
}

case $action in
start) start "$@" ;;
run) [ $# -gt 0 ] || usage; run "$@" ;;
kill) [ $# = 1 ] || usage; halt "$1" ;;
boot) [ $# = 1 ] || usage; node "$1" ;;
stop) stop ;;
*) usage ;;
esac

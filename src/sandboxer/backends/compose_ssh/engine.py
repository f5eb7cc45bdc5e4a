"""Writes the shell scripts that the host runs: pure text. What a sandbox has there is named after its id, or
labelled with it, and each script may be repeated.

    <remote_dir>/mark                  which database it belongs to
    <remote_dir>/bin/supervisor-…      what runs first in every sandbox
    <remote_dir>/sandboxes/<id>/       there before anything else of it, gone after everything else
        workspace/                     /workspace of its container; the compose file lies somewhere in it
        door/s                         where its supervisor listens
        stack.yml                      what is given to compose
"""

from __future__ import annotations

from sandboxer.backends.contract import Order
from sandboxer.backends.launch import CAPABILITIES

# Of a container or network: which folder it belongs to, and which sandbox it is.
DIR_LABEL = "sandboxer.remote-dir"
ID_LABEL = "sandboxer.sandbox"
# Where a sandbox sees its supervisor: below /dev, which is in memory.
_INSIDE = "/dev/.sandboxer"
# In a socket's address 107 bytes fit.
MOST_DIR = 50
# How `MAKE` ends when it made nothing.
FULL, TAKEN = 75, 76

# $1: the folder of all. Prints the ids of all that has something here, some of them twice.
INVENTORY = f"""
ls "$1/sandboxes" 2>/dev/null
docker ps -aq --filter "label={DIR_LABEL}=$1" --format '{{{{.Label "{ID_LABEL}"}}}}' || exit 1
docker network ls -q --filter "label={DIR_LABEL}=$1" --format '{{{{.Name}}}}'
"""

# $1: its id. Prints the state of its container, or nothing.
STATE = """
if said=$(docker inspect --type container --format '{{.State.Status}} {{.State.OOMKilled}}' "$1" 2>&1); then
    echo "$said"
    exit 0
fi
case $said in *[Nn]"o such"*) exit 0 ;; esac
echo "$said" >&2
exit 1
"""

# $1: the folder of all. Prints the id of each that has ended, and of each that ends from now on, until stdin
# ends: a connection may break, and what listens to the engine must not stay behind.
DEATHS = f"""
now=$(date +%s)
docker ps -a --filter "label={DIR_LABEL}=$1" --filter status=exited --format '{{{{.Label "{ID_LABEL}"}}}}'
exec 3<&0
(cat <&3; ! grep -q events "/proc/$$/cmdline" || kill "$$") >/dev/null 2>&1 &
exec docker events --since "$now" --filter type=container --filter event=die --filter "label={DIR_LABEL}=$1" \
    --format '{{{{index .Actor.Attributes "{ID_LABEL}"}}}}'
"""

_OF_ONE = f"""
containers() {{
    docker ps -aq --no-trunc --filter "label={ID_LABEL}=$id" || return 1
    docker ps -aq --no-trunc --filter "label=com.docker.compose.project=$id" || return 1
}}
"""

# Ends a compose that still brings something up: whoever began it has gone.
_END_UP = """
pid=$(cat "$dir/sandboxes/$id/up.pid" 2>/dev/null)
if [ -n "$pid" ] && tr '\\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q "$id"; then
    kill "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
fi
"""

# $1: the folder of all, $2: its id. Prints how many of what it removed, or fails saying what is left.
REMOVE = f"""
dir=$1 id=$2
{_OF_ONE}
gone() {{ # what, ids, how
    what=$1 found=$2; shift 2
    for one in $found; do
        if said=$("$@" "$one" 2>&1 >/dev/null); then echo "$what"; continue; fi
        # Somebody else removes it at this moment, or did before.
        case $said in *[Nn]"o such"* | *"not found"* | *"already in progress"*) ;; *) echo "$said" >&2 ;; esac
    done
}}
{_END_UP}
ids=$(containers) || {{ echo "the engine does not say what is there" >&2; exit 1; }}
gone container "$ids" docker rm -f -v
ours="--filter label=com.docker.compose.project=$id"
gone network "$(docker network ls -q --filter "label={ID_LABEL}=$id"; docker network ls -q $ours)" \
    docker network rm
gone volume "$(docker volume ls -q $ours)" docker volume rm -f
gone image "$(docker images -q --filter "reference=$id*")" docker rmi -f
[ -z "$(containers)" ] || {{ echo "containers are left" >&2; exit 1; }}
[ ! -d "$dir/sandboxes/$id" ] || {{ rm -rf "$dir/sandboxes/$id" 2>/dev/null && echo folder; }} || true
"""

# $1: the folder of all, $2: its id, $3: an image. For a user who may not remove what containers wrote.
REMOVE_FOLDER = """
[ -d "$1/sandboxes/$2" ] || exit 0
docker run --rm --network none -v "$1/sandboxes:/all" --entrypoint rm "$3" -rf "/all/$2" && echo folder
"""

# $1: its id. A stop keeps what is on disks, and ends all else.
STOP = f"""
id=$1
{_OF_ONE}
others=$(docker ps -q --filter "label=com.docker.compose.project=$id") || exit 1
[ -z "$others" ] || docker stop -t 10 $others >/dev/null || exit 1
[ "$(docker inspect --format '{{{{.State.Running}}}}' "$id")" = false ] || docker kill "$id" >/dev/null
[ "$(docker wait "$id")" ]
"""

# $1: its id, $2: its folder. Prints `cpu NANOSECONDS`, `memory BYTES` and `pids N` of each, and `disk BYTES`.
USAGE = f"""
id=$1
{_OF_ONE}
groups=/sys/fs/cgroup
all=$(containers) || exit 1
for pid in $(docker inspect --format '{{{{.State.Pid}}}}' $all); do
    [ "$pid" != 0 ] || continue
    while IFS=: read -r number names path; do
        case ",$names," in
        ,,) at=$groups$path
            [ -f "$at/memory.current" ] || continue
            echo "memory $(cat "$at/memory.current")"
            echo "cpu $(sed -n 's/^usage_usec //p' "$at/cpu.stat")000"
            echo "pids $(cat "$at/pids.current")" ;;
        *,memory,*) echo "memory $(cat "$groups/memory$path/memory.usage_in_bytes")" ;;
        *,cpuacct,*) echo "cpu $(cat "$groups/cpuacct$path/cpuacct.usage")" ;;
        *,pids,*) echo "pids $(cat "$groups/pids$path/pids.current")" ;;
        esac
    done <"/proc/$pid/cgroup"
done 2>/dev/null
for size in $(docker inspect --size --format '{{{{.SizeRw}}}}' $all); do echo "disk $size"; done
echo "disk $(du -s -B1 "$2/workspace" 2>/dev/null | cut -f1)"
"""

# $1: the folder of all. Prints facts, a line each.
LOOK = """
mkdir -p "$1/sandboxes" "$1/bin" && chmod 700 "$1" || exit 1
echo "architecture $(uname -m)"
echo "kernel $(uname -r)"
if said=$(docker version --format '{{.Server.Version}}' 2>&1); then echo "docker $said"; else
    echo "no-docker $(echo "$said" | tail -n 1)"; fi
if said=$(docker compose version --short 2>/dev/null); then echo "compose docker compose $said"
elif said=$(docker-compose version --short 2>/dev/null); then echo "compose docker-compose $said"; fi
echo "free_mb $(df -P -m "$1" | tail -n 1 | awk '{print $4}')"
"""

# $1: the folder of all, $2: a name; stdin: the program. It is whole, or not there.
INSTALL = """
mkdir -p "$1/bin" "$1/sandboxes" && chmod 700 "$1" || exit 1
[ -x "$1/bin/$2" ] && exit 0
cat >"$1/bin/.new-$$" && chmod 755 "$1/bin/.new-$$" && mv "$1/bin/.new-$$" "$1/bin/$2"
"""

# $1: the folder of all; stdin: the text. It survives a crash whole.
SET_MARK = """
mkdir -p "$1" && chmod 700 "$1" && cat >"$1/.mark-$$" && sync "$1/.mark-$$" && mv "$1/.mark-$$" "$1/mark"
"""

# $1: the folder of all, $2: how many are enough, $3: its id; the rest: what `docker run` is given.
MAKE = f"""
dir=$1 most=$2 id=$3; shift 3
umask 077
mkdir -p "$dir/sandboxes" || exit 1
there=$(ls "$dir/sandboxes" | wc -l)
[ "$there" -lt "$most" ] || {{ echo "there are $there sandboxes" >&2; exit {FULL}; }}
[ ! -e "$dir/sandboxes/$id" ] || exit {TAKEN}
mkdir "$dir/sandboxes/$id" "$dir/sandboxes/$id/door" || exit 1
mkdir -m 755 "$dir/sandboxes/$id/workspace" || exit 1
docker network create --internal --label "{DIR_LABEL}=$dir" --label "{ID_LABEL}=$id" "$id" >/dev/null &&
    docker run "$@" >/dev/null
"""


def folder_of(remote_dir: str, sandbox_id: str) -> str:
    return f"{remote_dir}/sandboxes/{sandbox_id}"


def door_of(remote_dir: str, sandbox_id: str) -> str:
    return f"{folder_of(remote_dir, sandbox_id)}/door/s"


def run_words(order: Order, *, remote_dir: str, supervisor: str, image: str) -> list[str]:
    """Returns what `docker run` is given for the container of a sandbox."""
    id_, limits = order.sandbox_id, order.resources
    folder = folder_of(remote_dir, id_)
    words = ["-d", "--name", id_, "--hostname", order.hostname or id_, "--network", id_]
    # Names beyond its network are nobody's: else the engine would ask for them.
    words += ["--dns", "127.0.0.1", "--restart", "no", "--pull", "never"]
    words += ["--label", f"{DIR_LABEL}={remote_dir}", "--label", f"{ID_LABEL}={id_}"]
    words += ["--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"]
    words += ["--cpus", f"{limits.vcpus:g}", "--pids-limit", str(limits.pids), "--cap-drop", "ALL"]
    words += [f"--cap-add={name}" for name in CAPABILITIES]
    words += ["-v", f"{folder}/workspace:/workspace", "-v", f"{folder}/door:{_INSIDE}/door"]
    words += ["-v", f"{remote_dir}/bin/{supervisor}:{_INSIDE}/supervisor:ro"]
    words += ["--tmpfs", "/run/sandboxer:mode=755,size=1m", "--entrypoint", f"{_INSIDE}/supervisor"]
    return [*words, image, f"socket={_INSIDE}/door/s", "-1", "0", "/run/sandboxer"]


def usage_of(printed: str) -> dict[str, int]:
    """Adds up what USAGE printed, by its first words."""
    sums = {"cpu": 0, "memory": 0, "pids": 0, "disk": 0}
    for line in printed.splitlines():
        name, _, number = line.partition(" ")
        if name in sums and number.isdigit():
            sums[name] += int(number)
    return sums

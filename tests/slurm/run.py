"""A ring in jobs of a real Slurm: what one job wrote is there in the next, on other hosts, and after a kill.

    sudo python3 tests/slurm/run.py --atoll target/debug/atoll

Sets up munge, slurmctld and four slurmd in namespaces of their own: each slurmd is a host with a name and an address.
Needs root and Debian's packages slurmctld, slurmd, slurm-client, munge and iproute2.

Three jobs run the script that `atoll ring slurm` writes. The first writes and ends by itself. The second gets another
list of hosts, looks up what the first wrote, writes more, and is killed with SIGKILL, nodes and all. The third is
stopped by its time limit while its command sleeps; before, it looks up everything.

Invariant: nothing of it outlives this process, nor is seen outside of its namespaces.
Invariant: it ends with 0 only if the jobs ran and held, with 1 if they did not hold, with 2 if it cannot be tried here.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOSTS = 4
NODES = 3
KEYS = 40
HAPPENS_SECONDS_MAX = 120
NETWORK = "10.98.0"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "ip", "unshare", "nsenter")

SLURM_CONF = """
ClusterName=atoll
SlurmctldHost=control({network}.254)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=5
SchedulerParameters=bf_interval=1,sched_interval=1
{hosts}
PartitionName=all Nodes=node[1-{count}] Default=YES MaxTime=INFINITE State=UP
"""


class SlurmError(Exception):
    """Slurm, or a job, did not do what the trial needs."""


class Slurm:
    """A cluster of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []
        self.hosts = {f"node{number}": f"{NETWORK}.{number}" for number in range(1, HOSTS + 1)}
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")

    def start(self) -> None:
        for name in ("state", *(f"spool-{host}" for host in self.hosts)):
            (self.folder / name).mkdir()
        self.name_hosts()
        lines = [f"NodeName={name} NodeAddr={address} CPUs=2 State=UNKNOWN" for name, address in self.hosts.items()]
        conf = SLURM_CONF.format(folder=self.folder, network=NETWORK, hosts="\n".join(lines), count=HOSTS)
        (self.folder / "slurm.conf").write_text(conf)
        self.start_munge()
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "hub", "type", "bridge")
        run("ip", "addr", "add", f"{NETWORK}.254/24", "dev", "hub")
        run("ip", "link", "set", "hub", "up")
        socket.sethostname("control")
        self.begin("slurmctld", "slurmctld", "-D")
        for name, address in self.hosts.items():
            self.start_host(name, address)
        wait_until(lambda: idle_hosts() == HOSTS, "have all hosts idle")

    def name_hosts(self) -> None:
        """Makes all hosts resolvable by name; the hosts file is replaced in this namespace only."""
        named = {"localhost": "127.0.0.1", "control": f"{NETWORK}.254", **self.hosts}
        names = self.folder / "hosts"
        names.write_text("".join(f"{address} {name}\n" for name, address in named.items()))
        run("mount", "--bind", str(names), "/etc/hosts")

    def start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        place = {name: f"--{name}-file={self.folder}/munge.{name}" for name in ("key", "pid", "log", "seed")}
        socket_file = self.folder / "munge.socket"
        self.begin("munged", "munged", "--foreground", "--force", f"--socket={socket_file}", *place.values())
        wait_until(socket_file.exists, "start munge")

    def start_host(self, name: str, address: str) -> None:
        """Starts a host: a name, a network and a slurmd of its own."""
        script = 'hostname "$1"; while ! ip addr show dev eth0 2>/dev/null | grep -q inet; do sleep 0.05; done; '
        script += 'exec slurmd -D -N "$1"'
        host = self.begin(f"slurmd-{name}", "unshare", "--net", "--uts", "sh", "-c", script, "sh", name)
        wait_until(lambda: os.readlink(f"/proc/{host.pid}/ns/net") != os.readlink("/proc/self/ns/net"), "have a host")
        cable = f"to-{name}"
        run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        run("ip", "link", "set", cable, "master", "hub", "up")
        inside = ("nsenter", f"--net=/proc/{host.pid}/ns/net", "ip")
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "addr", "add", f"{address}/24", "dev", "eth0")

    def begin(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def end(self) -> None:
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Jobs:
    """Jobs that run one ring, one after another."""

    def __init__(self, atoll: Path, folder: Path) -> None:
        self.atoll, self.folder, self.ring = atoll, folder, folder / "ring"

    def submit(self, name: str, hosts: str, command: str, *options: str) -> str:
        """Submits a job; the output of its command goes to a file named after the job."""
        sbatch = [f"--nodelist={hosts}", f"--output={self.folder}/{name}.out", *options]
        written = [str(self.atoll), "ring", "slurm", "--nodes", str(NODES), "--store", str(self.ring)]
        written += [f"--sbatch={option}" for option in sbatch]
        script = run(*written, "--", "bash", "-c", command)
        submitted = run("sbatch", "--parsable", stdin=script)
        return submitted.strip().split(";")[0]

    def said(self, name: str) -> str:
        file = self.folder / f"{name}.out"
        return file.read_text() if file.exists() else ""

    def write(self, begin: int) -> str:
        """A shell command that writes some keys."""
        put = f'"{self.atoll}" kv put station $number value-$number > /dev/null || exit 9'
        return f"for number in $(seq {begin} {begin + KEYS - 1}); do {put}; done; echo written {begin}"

    def look_up(self, end: int) -> str:
        """A shell command that counts how many of the first keys have their values."""
        get = f'[ "$("{self.atoll}" kv get station $number)" = value-$number ] && there=$((there + 1))'
        return f"there=0; for number in $(seq 1 {end}); do {get}; done; echo there $there"


def trial(jobs: Jobs) -> None:
    """Runs the three jobs."""
    first = jobs.submit("first", "node[1-3]", jobs.write(1))
    wait_until(lambda: state(first) == "COMPLETED", "end the first job well", lambda: jobs.said("first"))
    expect(jobs, "first", "written 1")
    ended_cleanly(jobs, "first")
    token = jobs.ring / "token"
    if token.stat().st_mode & 0o077:
        raise SlurmError("others than its owner may read the token")
    print(f"ok  the first job, on node[1-3], wrote {KEYS} keys and ended by itself")

    second = jobs.submit("second", "node[2-4]", f"{jobs.look_up(KEYS)}; {jobs.write(KEYS + 1)}; sleep 600")
    wait_until(lambda: "written" in jobs.said("second"), "write in the second job", lambda: jobs.said("second"))
    expect(jobs, "second", f"there {KEYS}")
    run("scancel", "--full", "--signal=KILL", second)
    wait_until(lambda: state(second) not in ("RUNNING", "COMPLETING"), "kill the second job")
    wait_until(lambda: idle_hosts() == HOSTS, "have all hosts idle")
    print(f"ok  the second job, on node[2-4], found all {KEYS}, wrote {KEYS} more, and was killed with SIGKILL")

    third = jobs.submit("third", "node[1,3-4]", f"{jobs.look_up(2 * KEYS)}; sleep 600", "--time=2", "--signal=B:TERM@90")
    wait_until(lambda: "there" in jobs.said("third"), "look up in the third job", lambda: jobs.said("third"))
    expect(jobs, "third", f"there {2 * KEYS}")
    print(f"ok  the third job, on node[1,3-4], found all {2 * KEYS}")
    wait_until(lambda: state(third) not in ("RUNNING", "COMPLETING"), "end the third job before its time is over")
    ended_cleanly(jobs, "third")
    print("ok  a minute before its time was over, the third job was told, and its ring ended cleanly")


def ended_cleanly(jobs: Jobs, name: str) -> None:
    """Fails if a node was killed or ended with an error, according to the script."""
    if "did not end" in jobs.said(name):
        raise SlurmError(f"a node did not end well: {jobs.said(name)}")


def expect(jobs: Jobs, name: str, text: str) -> None:
    if text not in jobs.said(name).splitlines():
        raise SlurmError(f'the {name} job did not say "{text}": {jobs.said(name)}')


def state(job: str) -> str:
    """The state of a job according to Slurm."""
    words = run("scontrol", "--oneliner", "show", "job", job).split()
    return next(word.split("=")[1] for word in words if word.startswith("JobState="))


def idle_hosts() -> int:
    told = subprocess.run(["sinfo", "-h", "-N", "-o", "%t"], capture_output=True, text=True, check=False)
    return told.stdout.split().count("idle")


def run(*command: str, stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SlurmError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def wait_until(holds, what: str, told=lambda: "") -> None:  # noqa: ANN001
    until = time.monotonic() + HAPPENS_SECONDS_MAX
    while not holds():
        if time.monotonic() > until:
            raise SlurmError(f"it took more than {HAPPENS_SECONDS_MAX} s to {what}\n{told()}")
        time.sleep(0.1)


def missing() -> str | None:
    """Why the trial cannot run here, if it cannot."""
    if os.geteuid() != 0:
        return "root, for namespaces"
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"{', '.join(lacking)}: apt install slurmctld slurmd slurm-client munge iproute2" if lacking else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--atoll", type=Path, required=True, help="the program")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside is None:
        if (lacks := missing()) is not None:
            print(f"SKIPPED [slurm] {lacks}")
            return 2
        with tempfile.TemporaryDirectory(prefix="atoll-slurm-") as folder:
            again = [sys.executable, __file__, "--atoll", str(asked.atoll.resolve()), "--inside", folder]
            # A process namespace ends with its first process, and takes all others along.
            spaces = ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
            return subprocess.run([*spaces, *again], check=False).returncode
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    slurm = Slurm(asked.inside)
    try:
        slurm.start()
        trial(Jobs(asked.atoll, asked.inside))
    except SlurmError as error:
        print(f"FAILED {error}")
        for log in sorted([*asked.inside.glob("slurmctld.log"), *asked.inside.glob("ring/*.log"), *asked.inside.glob("*.out")]):
            print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-12:], sep="\n")
        return 1
    finally:
        slurm.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())

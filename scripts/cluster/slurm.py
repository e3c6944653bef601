"""Slurm: its configuration, its daemons, and requests to it."""
import os
import resource
import shutil
import socket
import stat
import subprocess
import time

import nodes
from state import ClusterError, report, write

PORT = 6817
START_WAIT_S = 60
CANCEL_WAIT_S = 3
MAX_OPEN_FILES = 65536  # Slurm's daemons close every possible descriptor one by one: with a limit of 10^9 for minutes
PACKAGES = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge", "ip": "iproute2",
            "unshare": "util-linux", "nsenter": "util-linux", "mount": "mount", "hostname": "hostname"}


def require_programs():
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [program for program in PACKAGES if not shutil.which(program)]
    if missing:
        packages = sorted({PACKAGES[program] for program in missing})
        raise ClusterError(f"missing {', '.join(missing)}: apt-get install {' '.join(packages)}")


def write_configuration(cluster, network, options):
    write(cluster.path("slurm.conf"), slurm_conf(cluster, network, options))
    # Read only where --conf selects plugins that use cgroups.
    write(cluster.path("cgroup.conf"), "IgnoreSystemd=yes\n")
    plugin = f"optional {options.plugin} {options.plugin_args}".rstrip() + "\n" if options.plugin else ""
    write(cluster.path("plugstack.conf"), plugin)
    gpus = [cluster.path("dev", f"nvidia{index}") for index in range(options.gpus)]
    for index, gpu in enumerate(gpus):
        os.mknod(gpu, 0o666 | stat.S_IFCHR, os.makedev(195, index))
    write(cluster.path("gres.conf"), "AutoDetect=off\n" + "".join(f"Name=gpu File={gpu}\n" for gpu in gpus))
    for file in options.file:
        shutil.copy(file, cluster.path(os.path.basename(file)))
    write(cluster.path("munge.key"), os.urandom(128).hex(), 0o600)


def slurm_conf(cluster, network, options):
    settings, further_lines = overridden(default_settings(cluster, network, options), options.conf)
    if "socket=" not in settings["AuthInfo"]:
        settings["AuthInfo"] = f"socket={cluster.path('munge', 'socket')},{settings['AuthInfo']}"
    named = [f"{key}={value}" for key, value in settings.items()]
    return "\n".join([*named, *further_lines, *node_lines(network, options)]) + "\n"


def default_settings(cluster, network, options):
    return {
        "ClusterName": cluster.name,
        # All clusters of this machine have its /tmp, where programs name files by the job.
        "FirstJobId": str(1 + 1000 * network["number"]),
        "SlurmctldHost": f"{nodes.CONTROLLER}({network['controller']})",
        "SlurmctldPort": str(PORT),
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        # A requeued job starts when its first credential has expired: after 2 minutes by default.
        "AuthInfo": "cred_expire=5",
        "StateSaveLocation": cluster.path("controller"),
        "SlurmctldPidFile": cluster.path("controller", "pid"),
        "SlurmctldLogFile": cluster.path("log", "slurmctld.log"),
        "SlurmdSpoolDir": cluster.path("nodes", "%n", "spool"),
        "SlurmdPidFile": cluster.path("nodes", "%n", "slurmd.pid"),
        "SlurmdLogFile": cluster.path("log", "slurmd-%n.log"),
        "SlurmdParameters": "config_overrides",  # nodes may have more CPUs than the machine
        "TmpFS": cluster.path("nodes", "%n", "tmp"),
        "ReturnToService": "2",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SchedulerType": "sched/backfill",
        # Scheduling intervals of heterogeneous, batch and requeued jobs: 30 s, 3 s and 60 s by default.
        "SchedulerParameters": "bf_interval=1,batch_sched_delay=0,sched_interval=1",
        "GresTypes": "gpu",
        "MailProg": "/bin/true",
        "MpiDefault": "none",
        "MpiParams": f"ports={options.port_range}",
        "PropagateResourceLimits": "NONE",
    }


def overridden(settings, lines):
    """The settings with the user's values, and the user's lines for other keys."""
    names = {name.lower(): name for name in settings}
    further = []
    for line in lines:
        key, value = line.split("=", 1)
        if key.lower() in names:
            settings[names[key.lower()]] = value
        else:
            further.append(line)
    return settings, further


def node_lines(network, options):
    gres = f" Gres=gpu:{options.gpus}" if options.gpus else ""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    compute = [f"NodeName={name} NodeAddr={address} CPUs={options.cpus} Boards=1 SocketsPerBoard=1 "
               f"CoresPerSocket={options.cpus} ThreadsPerCore=1 RealMemory={memory}{gres}"
               for name, address in network["nodes"].items()]
    # slurmctld finds the address of a waiting srun by its NodeName; without one it would notify its own address.
    login = f"NodeName={nodes.login_name()} NodeAddr={network['login']} State=FUTURE"
    partition = f"PartitionName=main Nodes={','.join(network['nodes'])} Default=YES MaxTime=INFINITE State=UP"
    return [*compute, login, partition]


def start_daemons(cluster, network):
    """Starts every munged, then slurmctld, then every slurmd; each as soon as the ones before answer.

    Each node has its own munged, as on real clusters. A shared munged takes the credential of a step of two nodes for
    replayed, and slurmd before 23.02.5 frees the text of that error twice where two steps start at once
    (docs/develop/cluster.md).
    """
    limit_resources()
    deadline = time.monotonic() + START_WAIT_S
    daemons = {}

    def start(name, command):
        daemons[name] = start_daemon(cluster, name, command)

    def wait(fact, name):
        wait_until(fact, daemons, deadline, cluster, name)

    munge_folders = {"munged": (nodes.CONTROLLER, cluster.path("munge"))}
    munge_folders |= {f"munged-{node}": (node, cluster.path("nodes", node, "munge")) for node in network["nodes"]}
    for name, (node, folder) in munge_folders.items():
        start(name, nodes.inside(cluster, node, munged(cluster, name, folder)))
    for name, (_, folder) in munge_folders.items():
        wait(lambda: answers(socket.AF_UNIX, os.path.join(folder, "socket")), name)
    start("slurmctld", nodes.inside(cluster, nodes.CONTROLLER, ["slurmctld", "-D"]))
    wait(lambda: answers(socket.AF_INET, (network["controller"], PORT)), "slurmctld")
    for name in network["nodes"]:
        start(f"slurmd-{name}", nodes.inside(cluster, name, ["slurmd", "-D", "-N", name]))
    wait(lambda: all_idle(cluster, network), "slurmctld")


def limit_resources():
    """Sets the limits that daemons and tasks inherit: the highest allowed, MAX_OPEN_FILES at most, no core files."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MAX_OPEN_FILES if files == resource.RLIM_INFINITY else min(files, MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    _, locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (locked, locked))
    _, core = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, core))


def munged(cluster, name, folder):
    files = {option: os.path.join(folder, option) for option in ("socket", "pid", "seed")}
    return ["munged", "--foreground", "--force", f"--key-file={cluster.path('munge.key')}",
            f"--socket={files['socket']}", f"--pid-file={files['pid']}", f"--seed-file={files['seed']}",
            f"--log-file={cluster.path('log', f'{name}.log')}"]


def start_daemon(cluster, name, command):
    with open(cluster.path("log", f"{name}.out"), "wb") as output:
        return subprocess.Popen(command, env=nodes.daemon_environment(cluster), stdin=subprocess.DEVNULL, stdout=output,
                                stderr=subprocess.STDOUT, cwd="/", start_new_session=True, close_fds=False)


def wait_until(fact, daemons, deadline, cluster, daemon):
    while not fact():
        ended = next((name for name, process in daemons.items() if process.poll() is not None), None)
        if ended:
            raise ClusterError(f"{ended} ended with exit code {daemons[ended].returncode}{log_tail(cluster, ended)}")
        if time.monotonic() > deadline:
            raise ClusterError(f"the cluster was not ready after {START_WAIT_S} s{log_tail(cluster, daemon)}")
        time.sleep(0.01)


def log_tail(cluster, daemon):
    with open(cluster.path("log", f"{daemon}.out"), errors="replace") as file:
        lines = file.read().splitlines()[-15:]
    return "".join(f"\n  {line}" for line in [f"the last lines of {daemon}:", *lines])


def answers(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        return connection.connect_ex(address) == 0


def ask(cluster, *command, seconds=10):
    """The output of a Slurm client program, empty where it failed."""
    try:
        return subprocess.run(command, env={**os.environ, **cluster.environment()}, capture_output=True, text=True,
                              timeout=seconds).stdout
    except subprocess.TimeoutExpired:
        return ""


def all_idle(cluster, network):
    # One line for each node and partition.
    states = ask(cluster, "sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
    return set(states) == {f"{name} idle" for name in network["nodes"]}


def cancel_jobs(cluster, controller):
    """Cancels the jobs where slurmctld answers, and waits CANCEL_WAIT_S for their end."""
    deadline = time.monotonic() + CANCEL_WAIT_S
    cancelled = set()
    while answers(socket.AF_INET, (controller, PORT)) and time.monotonic() < deadline:
        jobs = set(ask(cluster, "squeue", "--noheader", "--format=%A", seconds=CANCEL_WAIT_S).split())
        if not jobs:
            return
        if jobs - cancelled:
            report(f"cancelling jobs {' '.join(sorted(jobs - cancelled, key=int))}")
            ask(cluster, "scancel", *(jobs - cancelled), seconds=CANCEL_WAIT_S)
            cancelled |= jobs
        time.sleep(0.05)


def print_status(cluster):
    print(ask(cluster, "sinfo", "--Node", "--format=%N %T %C %G"), end="")
    print(ask(cluster, "squeue"), end="", flush=True)

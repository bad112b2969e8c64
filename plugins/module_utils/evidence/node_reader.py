# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine that this runs on tells of its GPUs and memory, as a node of the evidence document.

Every source is optional. What couldn't be read is in ``unreadable``, with the right that is missing; a command that doesn't end is
given up after its time and not called again. Standard library only: this runs on GPU nodes and in their containers.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import os
import platform
import pwd
import time
from datetime import datetime, timezone

from .. import documents
from ..documents import DocumentError
from . import amd_smi, gpu_topology, nvidia_smi, proc_files
from .cgroup import V1_FILES, V2_FILES, parse_cgroup
from .kernel_log import read_kernel_log
from .local_machine import Machine
from .redact import Redactor

SOURCES = ("gpus", "processes", "topology", "kernel", "cgroups", "limits", "memory", "services", "nccl")
# These look at the processes that nvidia-smi names.
_OF_PROCESSES = ("gpus", "processes", "cgroups", "limits", "nccl")

_TICKS = os.sysconf("SC_CLK_TCK")
_PROCESSES = 64
_COMMAND = 200
_CGROUP_ROOT = "/sys/fs/cgroup/"
_DRIVER_CONTAINER = "/run/nvidia/driver"  # where the GPU operator's driver container shows its root
# The inode of the machine's own process numbers, the same on every machine (PROC_PID_INIT_INO).
_HOST_PIDS = "pid:[4026531836]"

_NEEDS_SMI = {
    "hangs": "a GPU driver that answers, or a longer timeout where persistence mode is off",
    "refused": "the right to execute nvidia-smi",
}
# What amd-smi and rocm-smi are asked, by the parser's names for the answers.
_AMD_SMI = {
    "metric": ("metric", "--mem-usage", "--ecc"),
    "listing": ("list",),
    "static": ("static", "--asic", "--bus", "--vram", "--numa", "--driver"),
    "processes": ("process",),
}
_ROCM_SMI = (
    "--showmeminfo",
    "vram",
    "--showproductname",
    "--showuniqueid",
    "--showbus",
    "--showdriverversion",
)

# Our name: systemd's unit, and the process's name as the kernel keeps it (15 characters). The GPU operator runs the fabric
# manager in a container, and MPS has no unit of its own.
_SERVICES = {
    "fabric_manager": ("nvidia-fabricmanager.service", "nv-fabricmanage"),
    "persistenced": ("nvidia-persistenced.service", "nvidia-persiste"),
    "mps": (None, "nvidia-cuda-mps"),
}

# Variables that say how NCCL and vLLM use memory and links; of these too the ones with a secret's name are masked.
_PREFIXES = ("NCCL_", "TORCH_NCCL_", "VLLM_", "CUDA_MPS_", "GLOO_SOCKET_")
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
)
_VALUE = 300
_NCCL_FILE = "/etc/nccl.conf"

# A journal that may be read and has nothing of the kernel: either the kernel was quiet, or it keeps its messages elsewhere.
_QUIET = "the journal holds no kernel messages of that time"
_JOURNALS = ("/var/log/journal", "/run/log/journal")
_NEEDS_JOURNAL = "root, the group systemd-journal or adm, or kernel.dmesg_restrict=0"
_NEEDS_ENVIRON = "root, or the user that runs the process"


def read_node(name=None, sources=SOURCES, since=86400, timeout=10, nvidia_smi=None, machine=None):
    """An evidence document with this machine as its only node.

    name: what the cluster calls it, else the machine's own name; sources: of SOURCES; since: seconds that the kernel log is read
    back; timeout: seconds for each command; nvidia_smi: its path. Raises DocumentError where this isn't Linux.
    """
    if platform.system() != "Linux":
        raise DocumentError(
            f"GPU nodes are read on Linux, and {platform.node()} runs {platform.system() or 'something else'}:"
            " limit the play to the GPU nodes"
        )
    reader = _NodeReader(machine or Machine(timeout), name or platform.node(), sources, nvidia_smi)
    return reader.read(since)


class _NodeReader:
    def __init__(self, machine, name, sources, smi):
        self.machine = machine
        self.name = name
        self.sources = sources
        self.redactor = Redactor()
        self.unreadable = []
        self.node = documents.node()
        self._smi = self._nvidia_smi(smi)
        self._mounts = machine.read_or_none("/proc/self/mountinfo")
        self._own_pids = machine.link("/proc/self/ns/pid") not in (None, _HOST_PIDS)
        self._booted = proc_files.boot_time(machine.read_or_none("/proc/stat"))
        self._paths = {}  # by pid: its cgroup path for each controller; 0: the reader's own

    def read(self, since):
        self._read_reader()
        if set(self.sources) & set(_OF_PROCESSES):
            self._read_gpus()
            self._place_processes()
        if "kernel" in self.sources:
            self._read_kernel_log(since)
        for source, read in (
            ("topology", self._read_topology),
            ("cgroups", self._read_cgroups),
            ("limits", self._read_limits),
            ("memory", self._read_memory),
            ("services", self._read_services),
            ("nccl", self._read_nccl),
        ):
            if source in self.sources:
                read()
        self._leave_out("gpus", ("driver", "gpus"))
        self._leave_out("processes", ("processes",))
        moment = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
        who = self.node["reader"]
        where = "in a container on it" if self._own_pids else f"on {platform.node()}"
        document = documents.evidence(moment, "node", f"{self.name}, read {where} as {who['user']}")
        document["nodes"] = {self.name: self.node}
        document["unreadable"] = self.unreadable
        document["redactions"] = self.redactor.summary()
        return document

    def _miss(self, source, reason, needs=None, what=None):
        text = self.redactor.text(reason[:_VALUE])
        self.unreadable.append(documents.unreadable(source, what or f"node {self.name}", text, needs))

    def _leave_out(self, source, fields):
        """What was read for other sources' sake and isn't asked for itself."""
        if source not in self.sources:
            empty = documents.node()
            self.node.update({field: empty[field] for field in fields})

    # -- who reads -------------------------------------------------------------------------------------------

    def _read_reader(self):
        paths = proc_files.cgroup_paths(self.machine.read_or_none("/proc/self/cgroup"))
        uid, container = proc_files.pod_of(proc_files.memory_cgroup(paths))
        self._paths[0] = paths
        self.node["reader"] = {
            "user": _user_name(os.geteuid()),
            "uid": os.geteuid(),
            "pid_namespace": "own" if self._own_pids else "host",
            "pod_uid": uid or proc_files.pod_of_mounts(self._mounts),
            "container_id": container,
        }

    # -- GPUs and who holds their memory ---------------------------------------------------------------------

    def _nvidia_smi(self, given):
        """How nvidia-smi is called."""
        inside = _DRIVER_CONTAINER + "/usr/bin/nvidia-smi"
        if given:
            return (given,)
        if not self.machine.has_program("nvidia-smi") and self.machine.exists(inside):
            return ("chroot", self.machine.root + _DRIVER_CONTAINER, "nvidia-smi")
        return ("nvidia-smi",)

    def _run_smi(self, *arguments):
        """nvidia-smi's Command, or None where it was given up before: what hung once would hang again."""
        if self._smi is None:
            return None
        command = self.machine.run(*self._smi, *arguments)
        if command.problem in ("hangs", "refused"):
            self._miss("nvidia-smi", self._hanging(command), _NEEDS_SMI[command.problem])
        if command.problem:
            self._smi = None
        return command

    def _read_gpus(self):
        command = self._run_smi("-q", "-x")
        if command.problem == "missing":
            self._read_amd_gpus()
            return
        if command.problem == "refused":
            return
        complaint = command.errors
        if command.problem == "hangs":
            complaint += "\n" + self._hanging(command)
        found = nvidia_smi.read_query_xml(command.text, complaint, command.status)
        self.node.update({field: found[field] for field in ("driver", "gpus", "processes")})
        version = proc_files.driver_version(self.machine.read_or_none("/proc/driver/nvidia/version"))
        self.node["driver"]["version"] = self.node["driver"]["version"] or version
        self.node["driver"]["error"] = self.redactor.text(self.node["driver"]["error"])
        if found["failure"] and command.problem != "hangs":
            self._miss("gpus", found["failure"]["error"])
        if found["partial"]:
            self._miss("gpus", found["partial"])
        if any((gpu["mig"] or {}).get("instances") for gpu in found["gpus"]):
            listed = self._run_smi("-L")
            if listed and not listed.problem:
                nvidia_smi.name_instances(self.node["gpus"], listed.text)

    def _read_amd_gpus(self):
        printed = {}
        for name, arguments in _AMD_SMI.items():
            command = self.machine.run("amd-smi", *arguments, "--json")
            if command.problem:
                break
            printed[name] = command.text
        found = amd_smi.read_amd_smi(**printed)
        if command.problem == "missing":
            command = self.machine.run("rocm-smi", *_ROCM_SMI, "--json")
            found = amd_smi.read_rocm_smi(command.text)
        if command.problem == "missing":
            self._miss_gpus()
            return
        self.node.update({field: found[field] for field in ("driver", "gpus", "processes")})
        if command.problem:
            self._miss("gpus", self._hanging(command))
        elif found["partial"] or not found["gpus"]:
            self._miss(
                "gpus", found["partial"] or _first_line(command.errors) or f"{command.name} names no GPU"
            )

    def _miss_gpus(self):
        """There is no program that tells of GPUs; NVIDIA's kernel module may be loaded all the same."""
        version = proc_files.driver_version(self.machine.read_or_none("/proc/driver/nvidia/version"))
        if version:
            self.node["driver"] = {"version": version, "cuda": None, "error": None}
            self._miss(
                "gpus",
                f"the NVIDIA driver {version} is loaded, but there is no nvidia-smi",
                "the path of nvidia-smi in nvidia_smi",
            )
        else:
            self._miss(
                "gpus",
                "there is no nvidia-smi, amd-smi or rocm-smi",
                "a node with GPUs, or the path of nvidia-smi in nvidia_smi",
            )

    def _hanging(self, command):
        """What is said of a command that has a problem."""
        if command.problem == "refused":
            return f"{command.name} may not be executed"
        stuck = " and can't be killed: the kernel holds it" if command.is_stuck else ""
        return f"{command.name} did not end within {self.machine.timeout:g} s{stuck}"

    def _place_processes(self):
        """Whose the processes are: /proc knows the pid's cgroup, command and start, and a cgroup its pod and container."""
        held = self.node["processes"]
        if len(held) > _PROCESSES:
            held.sort(key=lambda process: -(process["used"] or 0))
            self._miss(
                "processes",
                f"{len(held) - _PROCESSES} of {len(held)} processes, those with the least GPU memory, are left out",
            )
            del held[_PROCESSES:]
        if held and self._own_pids:
            self._miss(
                "processes",
                "this is a container with process numbers of its own: those that nvidia-smi names aren't its own ones",
                "hostPID: true in the pod, or a run on the node itself",
            )
            return
        hidden = not self._sees_all_processes()
        for process in held:
            self._place(process, hidden)
        if any(process["alive"] is None for process in held):
            self._miss(
                "processes",
                "/proc is mounted with hidepid"
                if self._mounts
                else "/proc doesn't show whether it hides processes",
                "root, or the group that the mount's gid names",
            )

    def _sees_all_processes(self):
        """Whether a process that /proc doesn't show is dead. Process 1 is another user's: seen, hidepid holds back nothing."""
        if os.geteuid() == 0 or proc_files.hides_processes(self._mounts) is False:
            return True
        return self.machine.read_or_none("/proc/1/status") is not None

    def _place(self, process, hidden):
        folder = f"/proc/{process['pid']}/"
        status = self.machine.read_or_none(folder + "status")
        process["alive"] = None if hidden and status is None else status is not None
        if status is None:
            return
        facts = proc_files.status_of(status)
        paths = proc_files.cgroup_paths(self.machine.read_or_none(folder + "cgroup"))
        self._paths[process["pid"]] = paths
        process["cgroup"] = proc_files.memory_cgroup(paths)
        process["pod_uid"], process["container_id"] = proc_files.pod_of(process["cgroup"])
        started = proc_files.started_at(self.machine.read_or_none(folder + "stat"), self._booted, _TICKS)
        process["started_at"] = _stamp(started)
        arguments = proc_files.arguments_of(self.machine.read_or_none(folder + "cmdline"))
        process["command"] = " ".join(self.redactor.command_line(arguments))[:_COMMAND] or None
        process.update({"state": facts["state"], "uid": facts["uid"], "ns_pid": facts["ns_pid"]})
        process["name"] = process["name"] or facts["name"]

    def _pids(self):
        """The processes that hold GPU memory and can be looked at, each once."""
        return list(
            dict.fromkeys(
                process["pid"] for process in self.node["processes"] if process["pid"] in self._paths
            )
        )

    # -- what the GPU processes may use ----------------------------------------------------------------------

    def _read_cgroups(self):
        own = self.node["reader"]["container_id"]
        owners = {
            process["container_id"]: process["pid"]
            for process in self.node["processes"]
            if process["container_id"]
        }
        if own:
            owners.setdefault(own, 0)
        for container, pid in owners.items():
            found = self._counters(self._paths[pid], container == own)
            if found["version"] is None:
                self._miss(
                    "cgroup",
                    "the files of its cgroup can't be read",
                    "a run on the node itself, whose /sys/fs/cgroup has them",
                    f"container {container}",
                )
            else:
                self.node["cgroups"][container] = found

    def _counters(self, paths, own):
        """The counters of a container. A container sees its own cgroup as the root of the file system."""
        files = V1_FILES if "memory" in paths else V2_FILES
        texts = {}
        for file in files:
            controller, _slash, name = file[len(_CGROUP_ROOT) :].rpartition("/")
            path = proc_files.container_path(paths.get(controller)) or ""
            text = self.machine.read_or_none(f"{_CGROUP_ROOT}{controller}{path}/{name}")
            if text is None and own:
                text = self.machine.read_or_none(file)
            texts[file] = text
        return parse_cgroup(texts)

    def _read_limits(self):
        for pid in (0, *self._pids()):
            text = self.machine.read_or_none(f"/proc/{pid or 'self'}/limits")
            if text is not None:
                self.node["limits"].append(dict({"pid": pid}, **proc_files.limits_of(text)))

    # -- the machine -----------------------------------------------------------------------------------------

    def _read_topology(self):
        """Links between the GPUs and what is near them, and the CPUs: a GPU's neighbours are told by CPU and NUMA node."""
        nodes = (name for name in self.machine.names("/sys/devices/system/node") if name[4:].isdecimal())
        lists = {
            name[4:]: self.machine.read_or_none(f"/sys/devices/system/node/{name}/cpulist") for name in nodes
        }
        self.node["cpu"] = {
            "count": proc_files.cpu_count(self.machine.read_or_none("/sys/devices/system/cpu/online")),
            "numa": {number: text.strip() for number, text in lists.items() if text and text.strip()},
            "governor": _word(
                self.machine.read_or_none("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
            ),
        }
        matrix = self._run_smi("topo", "-m")
        if matrix is None or matrix.problem or matrix.status:
            return
        links = self._run_smi("nvlink", "-s")
        self.node["topology"] = gpu_topology.topology(matrix.text, links.text if links else "")

    def _read_memory(self):
        text = self.machine.read_or_none("/proc/meminfo")
        if text is None:
            self._miss("memory", "/proc/meminfo can't be read")
        self.node["memory"] = proc_files.memory_of(text)
        if not proc_files.mount_at(self._mounts, "/dev/shm"):
            self._miss("shm", "nothing is mounted at /dev/shm")
            return
        try:
            size, used = self.machine.file_system("/dev/shm")
        except OSError as error:
            self._miss("shm", f"/dev/shm: {error.strerror}")
            return
        self.node["shm"] = {"size": size, "used": used}

    def _read_services(self):
        units = {unit: name for name, (unit, _process) in _SERVICES.items() if unit}
        found = dict.fromkeys(_SERVICES)
        command = self.machine.run("systemctl", "show", "--property=Id,LoadState,ActiveState", *units)
        for block in command.text.split("\n\n"):
            fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
            if fields.get("Id") in units and fields.get("LoadState") == "loaded":
                found[units[fields["Id"]]] = fields.get("ActiveState")
        if not self._own_pids:
            running = {self._process_name(pid) for pid in self.machine.names("/proc") if pid.isdecimal()}
            found.update(
                {name: "active" for name, (_unit, process) in _SERVICES.items() if process in running}
            )
        elif command.problem or command.status:
            self._miss(
                "services",
                "this is a container, which sees neither systemd nor the node's processes",
                "a run on the node itself",
            )
        self.node["services"] = found

    def _process_name(self, pid):
        return _word(self.machine.read_or_none(f"/proc/{pid}/comm"))

    # -- the kernel log --------------------------------------------------------------------------------------

    def _read_kernel_log(self, since):
        start = time.time() - since
        refused: list[str] = []
        for read in (self._journal, self._kmsg, self._dmesg):
            found = read(start, refused)
            if found:
                self.node.update({field: found[field] for field in ("kernel_oom", "xids", "nvrm")})
                for sentence in found["left_out"]:
                    self._miss("kernel log", sentence)
                return
        if _QUIET not in refused:
            self._miss("kernel log", "; ".join(refused), _NEEDS_JOURNAL)

    def _parsed(self, lines, start, booted=None):
        return read_kernel_log(lines, since=start, booted=booted, mask=self.redactor.text)

    def _journal(self, start, refused):
        """Over all boots: a node that restarted says in an earlier one why. Not ``-k``, which means this boot only."""
        command = self.machine.start(
            "journalctl",
            "_TRANSPORT=kernel",
            f"--since=@{start:.0f}",
            "--output=json",
            "--output-fields=MESSAGE,_SOURCE_MONOTONIC_TIMESTAMP",
            "--no-pager",
        )
        counted = _Counted(command.lines())
        found = self._parsed(counted, start)
        if command.problem == "missing":
            refused.append("no journalctl")
        elif "permission" in command.errors or "not seeing messages" in command.errors:
            refused.append("the journal may not be read by this user")
        elif command.problem == "hangs" and not counted.seen:
            refused.append(f"journalctl did not end within {self.machine.timeout:g} s")
        elif not counted.seen:
            kept = any(self.machine.names(folder) for folder in _JOURNALS)
            refused.append(_QUIET if kept and not command.errors else "the journal is empty")
        else:
            if command.problem == "hangs":
                found["left_out"].append(
                    f"journalctl did not end within {self.machine.timeout:g} s: what it would have printed later is missing"
                )
            return found
        return None

    def _kmsg(self, start, refused):
        try:
            return self._parsed(self.machine.kernel_records(), start, time.time() - time.monotonic())
        except OSError as error:
            refused.append(f"/dev/kmsg: {error.strerror}")
            return None

    def _dmesg(self, start, refused):
        command = self.machine.start("dmesg")
        found = self._parsed(command.lines(), start, time.time() - time.monotonic())
        if command.problem or command.status:
            refused.append(f"dmesg: {_first_line(command.errors) or command.problem or command.status}")
            return None
        return found

    # -- NCCL ------------------------------------------------------------------------------------------------

    def _read_nccl(self):
        """The settings of the GPU processes, as they started, those that were told the same as one entry.

        variables: what all of them agree on, for a node may have several engines; where none can be read, what the reader itself
        would be told, if that says anything about the engines: in a container, or where no container holds a GPU.
        """
        processes: list[dict] = []
        refused = []
        pods = {item["pid"]: item["pod_uid"] for item in self.node["processes"]}
        for pid in self._pids():
            try:
                environment = proc_files.environment_of(self.machine.read(f"/proc/{pid}/environ"))
            except PermissionError:
                refused.append(str(pid))
                continue
            except OSError:
                continue
            found = dict(
                {"pids": [pid], "pod_uid": pods[pid]}, **self._settings(environment, f"/proc/{pid}/root")
            )
            found["interfaces"] = proc_files.interfaces_of(self.machine.read_or_none(f"/proc/{pid}/net/dev"))
            alike = next((item for item in processes if dict(item, pids=[pid]) == found), None)
            if alike:
                alike["pids"].append(pid)
            else:
                processes.append(found)
        if refused:
            self._miss(
                "nccl",
                "the environment of a GPU process may not be read",
                _NEEDS_ENVIRON,
                f"process {', '.join(refused)}",
            )
        told = processes
        in_containers = any(item["container_id"] for item in self.node["processes"])
        if not processes and (self._own_pids or not in_containers):
            told = [self._settings(self.machine.environ, "")]
        first = told[0] if told else {"variables": {}, "file": None, "from": None}
        self.node["nccl"] = {
            "variables": {
                name: value
                for name, value in first["variables"].items()
                if all(item["variables"].get(name) == value for item in told)
            },
            "file": first["file"],
            "from": first["from"],
            "processes": processes,
            "interfaces": [
                name for name in self.machine.names("/sys/class/net") if name != "bonding_masters"
            ],
            "hcas": self.machine.names("/sys/class/infiniband"),
        }

    def _settings(self, environment, root):
        """``{variables, file, from}``: the environment wins over the user's file, that over /etc/nccl.conf."""
        variables = {
            name: value
            for name, value in environment.items()
            if name.startswith(_PREFIXES) or name in _VARIABLES
        }
        origin, file = ("env" if variables else None), None
        personal = (
            environment.get("NCCL_CONF_FILE") or environment.get("HOME", "/root").rstrip("/") + "/.nccl.conf"
        )
        for path in (personal, _NCCL_FILE):
            text = self.machine.read_or_none(root + path) if path.startswith("/") else None
            settings = {
                name: value
                for name, value in proc_files.nccl_settings(text).items()
                if name.startswith("NCCL_")
            }
            if settings:
                file, origin = file or path, origin or "file"
                variables = dict(settings, **variables)
        shown = {
            name: (self.redactor.env_value(name, value) or "")[:_VALUE]
            for name, value in sorted(variables.items())
        }
        return {"variables": shown, "file": file, "from": origin}


class _Counted:
    """Lines, counted as they pass: JSON records only, for journalctl has words of its own where there are none."""

    def __init__(self, lines):
        self._lines = lines
        self.seen = 0

    def __iter__(self):
        for line in self._lines:
            self.seen += line.startswith("{")
            yield line


def _user_name(uid):
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _stamp(seconds):
    """RFC 3339 in UTC, or None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def _word(text):
    return (text or "").strip() or None


def _first_line(text):
    return text.strip().splitlines()[0] if text.strip() else None

# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds GPU memory that isn't ours, by the node's own list of processes.

A process belongs to a pod by the uid or the container's id in its cgroup's path, never by its pid: the pid that a log or a
container's nvidia-smi shows is of another namespace than the node's. Sizes tie the node's list to the log's numbers
("Free memory on device (x/y)", "Process N has X GiB memory in use"). The node is read after the failure, so a process that
started later didn't hold anything then, and one that is gone by then is said to be gone.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

import re
from collections import namedtuple

from ..documents import change, proof
from ..quantities import GIB, parse_size, show_bytes
from .advice_parts import STEP_GPU_NO_HELP
from .causes import DEVICE_MEMORY
from .pod_findings import engine_container, pod_finding
from .times import seconds

# What of a GPU can be ordered by itself: the card, or one MIG instance of it. gi: the instance's id, None for a card.
Device = namedtuple("Device", "label uuids gi ci total reserved used free")
# kind: pod, container, previous, outside, unknown, ended, unlisted, gone, later (came after the failure) or share (a used-up MPS share);
# name: who, in words; bytes:
# what they hold; pid: None where there is no process; tied: whether the size is the one that the log shows; sentence: all of it for a
# reader.
Holder = namedtuple("Holder", "kind name bytes pid since tied sentence")

# Smaller is a CUDA context or a monitor, not a tenant.
TENANT = GIB
# vLLM's own CUDA context and the driver's share, when free memory is looked at before anything is loaded.
_OWN_CONTEXT = int(1.5 * GIB)
# torch sees less than nvidia-smi's total, by the part that the driver reserves.
_TOTAL_SEEN = (0.93, 1.01)
_SAME_SIZE = 0.03
_SLACK = 30.0

_MONITORS = re.compile(
    r"dcgm|nv-hostengine|persistenced|gpu_exporter|node[_-]exporter|nvtop|gpud\b|/?Xorg|gnome-shell",
    re.IGNORECASE,
)
_MPS_SERVER = re.compile(r"nvidia-cuda-mps-server")
_MPS_LIMIT = re.compile(r"(?:^|,)\s*\d+\s*=\s*(\d+(?:\.\d+)?)\s*([KMGT])", re.IGNORECASE)


def devices(node):
    """The node's GPUs as ``Device``; of a GPU in MIG mode its instances instead, since their memory is what can run out."""
    found = []
    for gpu in node.get("gpus") or []:
        label = f"GPU {gpu['index'] if gpu.get('index') is not None else gpu.get('uuid')}"
        mig = gpu.get("mig") or {}
        instances = mig.get("instances") or []
        if mig.get("enabled") and instances:
            found += [
                Device(
                    f"MIG {item.get('profile') or 'instance'} ({item.get('gi')}/{item.get('ci')}) of {label}",
                    (item.get("uuid"), gpu.get("uuid")),
                    item.get("gi"), item.get("ci"),
                    item.get("total"), None, item.get("used"), item.get("free"),
                )
                for item in instances
            ]  # fmt: skip
        else:
            found.append(
                Device(label, (gpu.get("uuid"),), None, None, gpu.get("total"), gpu.get("reserved"), gpu.get("used"), gpu.get("free"))
            )  # fmt: skip
    return found


def processes_on(node, device):
    """The node's processes that hold memory of ``device``."""
    return [
        item
        for item in node.get("processes") or []
        if item.get("gpu")
        and item["gpu"] in device.uuids
        and (device.gi is None or item["gpu"] == device.uuids[0] or _same_instance(item, device))
    ]


def _same_instance(process, device):
    """Whether a process is of the MIG instance. Where nvidia-smi names no compute instance, the GPU instance decides."""
    if str(process.get("gi")) != str(device.gi):
        return False
    return process.get("ci") is None or device.ci is None or str(process["ci"]) == str(device.ci)


def is_monitor(process):
    """Whether a process watches GPUs instead of computing on them (DCGM, exporters, persistence daemon, X)."""
    return bool(_MONITORS.search(str(process.get("name") or "")))


def is_mps_server(process):
    """Whether a process is the MPS server, which holds its clients' shared context."""
    return bool(_MPS_SERVER.search(str(process.get("name") or "")))


def called(process):
    """``process 4711 (python3)``; what a command line says is redacted where it is read."""
    name = str(process.get("name") or "").rsplit("/", 1)[-1]
    return f"process {process.get('pid')}" + (f" ({name})" if name else "")


def without_process(node, device):
    """Bytes of a device that no listed process holds and the driver doesn't reserve, or None where that can't be told.

    It can't for a share of a card (vGPU), whose processes are in guests, for AMD's, whose list isn't complete, and in a container with
    process numbers of its own, where nvidia-smi lists none or only some.
    """
    listed = processes_on(node, device)
    hidden = (node.get("reader") or {}).get("pid_namespace") == "own"
    gpu: dict = next((gpu for gpu in node.get("gpus") or [] if gpu.get("uuid") in device.uuids), {})
    shared = "vgpu" in str(gpu.get("virtualization") or "").lower() or gpu.get("make") == "rocm"
    if hidden or shared or device.used is None or any(item.get("used") is None for item in listed):
        return None
    return max(0, device.used - sum(item["used"] for item in listed))


class Holders:
    """Who holds the GPU memory beside one attempt of a container.

    pods: ``{uid: "namespace/name"}`` of all pods that were seen.
    """

    def __init__(self, pod, container, attempt, node=None, pods=None):
        self.pod = pod
        self.container = container
        self.node = node or {}
        self.pods = pods or {}
        self.name = f"Node/{pod.get('node')}"
        self.ended = seconds(attempt.get("finished_at"))
        self.attempt = attempt
        self.runs = container.get("attempts") or []
        self.devices = devices(self.node)

    # -- whose process it is ----------------------------------------------------------------------------------------

    def kind_of(self, process):
        """``own``, or one of Holder's kinds, of a process of the node."""
        kind = self._placed(process)
        # Whatever it was, it has ended: nvidia-smi still lists it, and /proc doesn't, or as a zombie only.
        dead = process.get("alive") is False or process.get("state") == "Z"
        return (
            "ended" if dead and kind in ("own", "unknown", "outside") and not process.get("pod_uid") else kind
        )

    def _placed(self, process):
        uid, container_id = process.get("pod_uid"), process.get("container_id")
        ids = {run.get("container_id") for run in self.runs} - {None}
        mine = bool(uid and uid == self.pod.get("uid"))
        late = self._came_after(process, 0)
        if container_id and container_id in ids:
            newest = next(run for run in reversed(self.runs) if run.get("container_id"))
            own = container_id in (newest["container_id"], self.attempt.get("container_id"))
            return "own" if own or late else "previous"
        if mine:
            others = {
                run.get("container_id")
                for item in self.pod.get("containers") or []
                if item is not self.container
                for run in item.get("attempts") or []
            }
            if container_id and container_id in others:
                return "container"
            return "previous" if container_id and ids and not late else "own"
        if uid:
            return "pod"
        if container_id or process.get("cgroup"):
            return "outside"
        # Nothing was read of its cgroup: it may be ours, unless ours is known or nothing of ours runs.
        return "unknown" if self._ours_is_known else "own"

    @property
    def _ours_is_known(self):
        running = any(run.get("state") == "running" for run in self.runs)
        return not running or any(
            item.get("pod_uid") and item["pod_uid"] == self.pod.get("uid")
            for item in self.node.get("processes") or []
        )

    def _came_after(self, process, slack):
        """Whether a process started more than ``slack`` seconds after the attempt's end; not where a time is missing."""
        started = seconds(process.get("started_at"))
        return started is not None and self.ended is not None and started > self.ended + slack

    def _was_there(self, process):
        # Our own next run comes right after the last one: the pod's own processes have no slack.
        mine = process.get("pod_uid") and process["pod_uid"] == self.pod.get("uid")
        return not self._came_after(process, 0 if mine else _SLACK)

    def own_sizes(self):
        """Bytes that the pod's own processes hold now, one entry a process."""
        return [
            item["used"]
            for item in self.node.get("processes") or []
            if item.get("used")
            and item.get("pod_uid")
            and self.kind_of(item) == "own"
            and self._was_there(item)
        ]

    # -- where, who, how much ---------------------------------------------------------------------------------------

    def _ours(self, total):
        """The devices that the container can have used: by its processes, by its environment, else by the size that the log shows."""
        mine = [
            device
            for device in self.devices
            if any(
                item.get("pod_uid") and self.kind_of(item) == "own"
                for item in processes_on(self.node, device)
            )
        ]
        if not mine:
            visible = " ".join(
                str(item.get("value") or "")
                for item in self.container.get("env") or []
                if item.get("name") in ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
            )
            mine = [device for device in self.devices if device.uuids[0] and device.uuids[0] in visible]
        mine = mine or self.devices
        if total is None:
            return mine
        return [
            device
            for device in mine
            if device.total is None or _TOTAL_SEEN[0] * device.total <= total <= _TOTAL_SEEN[1] * device.total
        ]

    def find(self, total=None, held=None, sizes=()):
        """The holders on the device that fits the log best, largest first; an empty list where the node settles nothing.

        total: the device's memory as the log has it; held: bytes that the log shows in others' hands; sizes: of the processes that
        the log lists.
        """
        candidates = [(device, self._on(device, sizes)) for device in self._ours(total)]
        if not candidates:
            return []
        apart = {
            device: abs(sum(item.bytes for item in found) - held) if held is not None else 0
            for device, found in candidates
        }
        if len(candidates) > 1:
            near = [
                (device, found)
                for device, found in candidates
                if found
                and (
                    any(item.tied for item in found)
                    or (held is not None and apart[device] <= max(_OWN_CONTEXT, 0.15 * held))
                )
            ]
            # Where all of several devices are alike in others' hands it doesn't matter which was ours.
            taken = [(device, found) for device, found in candidates if found]
            near = near or (taken if held is None and len(taken) == len(candidates) else [])
            if not near:
                return self._gone(held, [device for device, _found in candidates])
            candidates = sorted(near, key=lambda pair: apart[pair[0]])
        device, found = candidates[0]
        if not found:
            return self._gone(held, [device])
        if held is not None and apart[device] <= max(_OWN_CONTEXT, 0.15 * held):
            found = [item._replace(tied=True) for item in found]
        elif held is not None and sum(item.bytes for item in found) > held:
            grown = f"; when it failed only {show_bytes(int(held))} were in others' hands, so this has grown since"
            found[0] = found[0]._replace(sentence=found[0].sentence + grown)
        return found

    def _on(self, device, sizes, later=False):
        """The tenants of one device, largest first: what each owner holds there, and what nobody is listed for.

        later: of those that came after the failure instead, as holders of the kind ``later``.
        """
        sums: dict[tuple, list] = {}
        for process in processes_on(self.node, device):
            kind = self.kind_of(process)
            if kind == "own" or not process.get("used") or self._was_there(process) is later:
                continue
            owner = (
                process.get("pod_uid") if kind == "pod" else process.get("container_id") or process.get("pid")
            )
            sums.setdefault((kind, owner), []).append(process)
        found = [self._holder(kind, group, device, sizes) for (kind, _owner), group in sums.items()]
        if later:
            found = [
                item._replace(
                    kind="later",
                    sentence=f"{item.sentence}, after the failure: the next start will find it there",
                )
                for item in found
            ]
        lost = None if later else without_process(self.node, device)
        if lost and lost >= TENANT and not self._unseen_own(device):
            text = (
                f"{show_bytes(lost)} of {device.label} are in use, and no process is listed for them: a process that has ended "
                "and isn't reaped, or one of another process namespace"
            )
            found.append(Holder("unlisted", "no listed process", lost, None, None, alike(lost, sizes), text))
        return sorted((item for item in found if item.bytes >= TENANT), key=lambda item: -item.bytes)

    def _unseen_own(self, device):
        """Whether memory without a process may be our own running container's, whose processes aren't in the list."""
        running = any(run.get("state") == "running" for run in self.runs)
        return running and not any(self.kind_of(item) == "own" for item in processes_on(self.node, device))

    def _holder(self, kind, processes, device, sizes):
        used = sum(item["used"] for item in processes)
        first = max(processes, key=lambda item: item["used"])
        who = self._who(kind, first)
        since = min((item["started_at"] for item in processes if item.get("started_at")), default=None)
        many = f" and {len(processes) - 1} more" if len(processes) > 1 else ""
        said = f", since {since}" if since else ""
        text = f"{who} holds {show_bytes(used)} of {device.label}: {called(first)}{many}{said}"
        tied = any(alike(item["used"], sizes) for item in processes)
        return Holder(kind, who, used, first.get("pid"), since, tied, text)

    def _who(self, kind, process):
        if is_mps_server(process):
            return "the MPS server"
        if is_monitor(process):
            return f"a monitor ({called(process)})"
        uid = process.get("pod_uid")
        if kind == "pod":
            return (
                f"pod {self.pods[uid]}" if uid in self.pods else f"a pod that was not looked at (uid {uid})"
            )
        if kind == "container":
            name = next(
                item["name"]
                for item in self.pod.get("containers") or []
                if any(
                    run.get("container_id") == process["container_id"] for run in item.get("attempts") or []
                )
            )
            return f"container {name} of the same pod"
        return {
            "previous": f"an earlier run of container {self.container['name']} that has not ended",
            "outside": "a process outside of Kubernetes"
            if not process.get("container_id")
            else "a container outside of Kubernetes",
            "unknown": "a process whose owner could not be read",
            "ended": "a process that has ended and whose memory was not released",
        }[kind]

    def _gone(self, held, among):
        """One that stands for who had released the memory before the node was looked at, where that is sure; else an empty list."""
        if not held or held < TENANT + _OWN_CONTEXT or not all(self._is_free(device) for device in among):
            return []
        where = among[0].label if len(among) == 1 else "a GPU of this node"
        text = f"whoever held {show_bytes(int(held))} of {where} had released it when the node was looked at"
        gone = Holder("gone", "nobody any more", int(held), None, None, False, text)
        come = [self._on(device, (), later=True) for device in among]
        # Another GPU without a newcomer may be the one that the next start gets.
        return [*(come[0] if all(come) else []), gone]

    def _is_free(self, device):
        """Whether a device is in nobody's hands now but those of our newest run, and of what came after the failure."""
        if device.used is None:
            return False
        newest = next((run["container_id"] for run in reversed(self.runs) if run.get("container_id")), None)
        later = [
            item.get("used") or 0
            for item in processes_on(self.node, device)
            if not self._was_there(item)
            or (newest and newest != self.attempt.get("container_id") and item.get("container_id") == newest)
        ]
        return device.used - sum(later) < TENANT

    @property
    def largest(self):
        """Bytes of the largest device of the node, or None."""
        return max((item.total for item in self.devices if item.total), default=None)

    # -- shares -----------------------------------------------------------------------------------------------------

    @property
    def mps_share(self):
        """Bytes that one client of MPS may take, or None: its own limit, else the card by the number of replicas."""
        for item in self.container.get("env") or []:
            limit = _MPS_LIMIT.search(str(item.get("value") or ""))
            if item.get("name") == "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" and limit:
                return parse_size(f"{limit.group(1)} {limit.group(2).upper()}iB")
        gpu = self.node.get("gpu") or {}
        labels = gpu.get("labels") or {}
        replicas = str(labels.get("nvidia.com/gpu.replicas") or "")
        total = gpu.get("memory_bytes") or max(
            (item.total for item in self.devices if item.total), default=None
        )
        if (gpu.get("sharing") or labels.get("nvidia.com/gpu.sharing-strategy")) != "mps" or not total:
            return None
        return total // int(replicas) if replicas.isdigit() and int(replicas) > 1 else None

    def share_used_up(self, numbers):
        """A ``Holder`` that stands for the MPS share that an out-of-memory text (``parse_oom``) shows to be used up, or None."""
        share = self.mps_share if numbers else None
        own = (numbers or {}).get("allocated")
        if not share or own is None:
            return None
        own += numbers.get("reserved") or 0
        if own + (numbers.get("tried") or 0) + _OWN_CONTEXT < share:
            return None
        text = (
            f"under MPS this container may have {show_bytes(share)} of the card, and it held {show_bytes(own)} when it asked for "
            f"{show_bytes(numbers.get('tried'))} more; what nvidia-smi shows as free isn't for it"
        )
        return Holder("share", "its own share", own, None, None, True, text)


def alike(size, sizes):
    """Whether one of the log's ``sizes`` is ``size``, but for rounding and what changed since."""
    return any(abs(size - other) <= _SAME_SIZE * other for other in sizes)


# -- what the node adds to a finding ------------------------------------------------------------------------------------

_STOP = "free_gpu"
_CHANGES = {
    "pod": (("one_engine_per_gpu", "{name} plans with the same GPU"), (_STOP, "it holds {size}")),
    "container": (("one_engine_per_gpu", "{name} holds {size} of the same GPU"),),
    "previous": (
        ("recreate_pod", "its sandbox goes with it, and with that the processes of the earlier run, which hold {size}"),
        ("wait_for_gpu", "the earlier run's memory is released when its last process has ended"),
    ),
    "outside": ((_STOP, "Kubernetes doesn't know of it, so it will not make room; it holds {size}"),),
    "unknown": ((_STOP, "it holds {size}"),),
    "unlisted": (
        (_STOP, "fuser -v /dev/nvidia* on the node shows processes that nvidia-smi doesn't list; they hold {size}"),
        ("reset_gpu", "memory that stays in use when no process has the device open is released by a reset only"),
    ),
    "ended": (
        (_STOP, "its parent must reap it: restart the container or service that started it; {size} are held"),
        ("reset_gpu", "memory that stays in use when no process has the device open is released by a reset only"),
    ),
    "later": (
        (_STOP, "it came after the failure and holds {size}, which the next start will miss"),
        ("one_engine_per_gpu", "{name} uses the same GPU now"),
    ),
    "share": (("size_for_slice", "an MPS client may have no more than its share, however much of the card is free"),),
    "gone": (("wait_for_gpu", "the memory was released later: the previous holder was still ending"),),
}  # fmt: skip


# So many holders are named in one change.
_NAMED = 3


def changes(holders):
    """The changes that fit the largest of the holders, and the stop of all of them."""
    first, several = holders[0], _together(holders)
    found = [
        change(
            "action",
            name,
            "set",
            value=(_all_of(holders) if several else _whom(first)) if name == _STOP else None,
            why=words.format(name=first.name, size=show_bytes(first.bytes))
            + (f"; stopping one alone may not be enough: {several}" if several and name == _STOP else ""),
        )
        for name, words in _CHANGES[first.kind]
    ]
    if several and not any(item["name"] == _STOP for item in found):
        found.append(change("action", _STOP, "set", value=_all_of(holders[1:]), why=several))
    return found


def _present(holders):
    return [item for item in holders if item.kind not in ("gone", "share")]


def _together(holders):
    """What several holders have, each and in all, or None where there is only one."""
    present = _present(holders)
    if len(present) < 2:
        return None
    each = ", ".join(f"{item.name} {show_bytes(item.bytes)}" for item in present[:_NAMED])
    more = f", {len(present) - _NAMED} more" if len(present) > _NAMED else ""
    return f"{each}{more}: together {show_bytes(sum(item.bytes for item in present))}"


def _all_of(holders):
    return "; ".join(filter(None, map(_whom, _present(holders)[:_NAMED]))) or None


def _whom(holder):
    if holder.pid is None:
        return None
    if holder.name.startswith(("pod ", "a pod ")):
        return holder.name
    return f"{holder.name}, process {holder.pid} of the node"


def proofs(holders, where):
    """The holders as proofs of a finding."""
    return [proof("node", where, item.sentence) for item in holders]


def explained(holders, node):
    """What the node shows, in one sentence."""
    said = "; ".join(item.sentence for item in holders[:_NAMED])
    more = f"; and {len(holders) - _NAMED} more" if len(holders) > _NAMED else ""
    present = _present(holders)
    if len(present) > 1:
        more += f"; together they hold {show_bytes(sum(item.bytes for item in present))}"
    if holders[0].kind == "share":
        return f"{said[0].upper()}{said[1:]}."
    return f"Node {node} shows who else has the GPU: {said}{more}."


# Causes that are about somebody else's memory: there the holder decides the advice. In other failures of device memory it is told.
_ABOUT_OTHERS = (
    "gpu_held_by_other",
    "gpu_free_below_util",
    "sleep_wakeup_oom",
    "kv_budget_misestimate",
    "cuda_library_alloc",
)


def of_finding(facts, judged):
    """The holders that a judged finding is about, largest first; an empty list where the node settles nothing."""
    cause, numbers = judged.verdict.cause, judged.verdict.numbers or {}
    share = facts.holders.share_used_up(judged.verdict.numbers)
    if share or cause not in DEVICE_MEMORY:
        return [share] if share else []
    groups = judged.match.groups if judged.match else {}
    total, held = numbers.get("total"), None
    if groups.get("free") and groups.get("total"):
        total, free = (round(float(groups[name]) * GIB) for name in ("total", "free"))
        held = total - free
    elif total and numbers.get("free") is not None and numbers.get("allocated") is not None:
        held = max(0, total - numbers["free"] - numbers["allocated"] - (numbers.get("reserved") or 0))
    found = facts.holders.find(total, held, [item["used"] for item in numbers.get("processes") or []])
    if cause in _ABOUT_OTHERS:
        return found
    beside = [item for item in found if item.kind not in ("gone", "later")]
    # More than was beside ours in that moment came later, or is on another card.
    return beside if held is not None and sum(item.bytes for item in beside) <= held + _OWN_CONTEXT else []


def advised(judged, holders, recommend):
    """The changes of a finding with those for its holder first; nobody is asked to stop who is gone."""
    if not holders or (holders[0].kind != "share" and judged.verdict.cause not in _ABOUT_OTHERS):
        return recommend
    first = changes(holders)
    names = {item["name"] for item in first} | ({_STOP} if holders[0].kind == "gone" else set())
    return first + [item for item in recommend if item["name"] not in names]


def beside_undetermined(pod, trigger, node, pods):
    """Findings on who else has the GPU of a failure, ``trigger``, that nothing else explains: told, not blamed.

    pods: ``{uid: "namespace/name"}`` of all pods that were seen.
    """
    engine = engine_container(pod)
    if trigger["cause"] != "undetermined" or not engine or trigger["container"] not in (None, engine["name"]):
        return []
    runs = engine.get("attempts") or []
    attempt = next((run for run in reversed(runs) if run.get("index") == trigger["attempt"]), None)
    holders = Holders(pod, engine, attempt or (runs[-1] if runs else {}), node, pods)
    found = holders.find()
    if not found:
        return []
    words = f"{explained(found, pod.get('node'))} Nothing shows that this is why it failed."
    return [
        pod_finding(
            pod,
            engine,
            "gpu_held_by_other",
            "contributing",
            "possible",
            proofs(found, holders.name),
            words,
            attempt=trigger["attempt"],
            runbook=STEP_GPU_NO_HELP,
            recommend=changes(found),
        )
    ]

# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubectl command that makes a change by hand, or that shows what a finding rests on.

Arguments are an atomic list in Kubernetes, and the evidence holds them redacted: so a command never rewrites a list
of arguments, it opens the object for the one edit that is needed.
"""

from __future__ import annotations

import json
import shlex

from ..engine.flags import is_secret
from ..quantities import quantity_bytes

_REVERTING = ("now", "on_sync")
# Objects whose pod template can't be edited in place.
_IMMUTABLE_KINDS = ("pod", "job")
_RESIZABLE_KINDS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
# Groups whose kinds kubectl knows by their bare names; of others there may be namesakes (two kinds of InferenceService).
_PLAIN_GROUPS = ("", "apps", "batch")

# The YAML path of a change with target k8s and a probe or volume name -> what to write there, in words.
_K8S_EDITS = {
    "volumes.shm": "an emptyDir volume with medium Memory and sizeLimit {value}, mounted at /dev/shm",
    "volumes.shm.sizeLimit": "the sizeLimit of the volume mounted at /dev/shm to {value}",
    "startupProbe": "a startupProbe with {value}",
    "livenessProbe": "the livenessProbe: {value}",
    "strategy": "the update strategy: {value}",
    "terminationGracePeriodSeconds": "terminationGracePeriodSeconds to {value}",
    "lifecycle.preStop": "lifecycle.preStop: {value}",
}


def namespace_option(pod):
    """`` -n NAMESPACE`` or an empty string for a pod without one (a plain log)."""
    return f" -n {shlex.quote(pod['namespace'])}" if pod.get("namespace") else ""


def in_cluster(pod):
    """Whether the pod is one that Kubernetes knows; a plain log's pod is only named after its file."""
    return bool(pod.get("namespace") or pod.get("uid") or pod.get("qos"))


def edited_object(pod):
    """``kind/name`` or ``kind.group/name`` of the object to edit, as kubectl takes it; the pod itself when nothing is
    above it."""
    workload = pod.get("workload") or {}
    edit = workload.get("edit") or workload
    if edit.get("kind") and edit.get("name"):
        group = (edit.get("api_version") or "").rpartition("/")[0]
        kind = edit["kind"].lower() + ("" if group in _PLAIN_GROUPS else f".{group}")
        return f"{kind}/{edit['name']}"
    return f"pod/{pod['name']}"


def reverting_manager(pod):
    """The manager that is proven to undo a live edit of the object to edit, as ``{tool, object}``, or None.

    What an operator does to the objects below is no obstacle.
    """
    workload = pod.get("workload") or {}
    edit = workload.get("edit") or workload
    below = {f"{item.get('kind')}/{item.get('name')}" for item in workload.get("chain") or []}
    below.discard(f"{edit.get('kind')}/{edit.get('name')}")
    for manager in workload.get("managers") or []:
        if (
            manager.get("proof") == "proof"
            and manager.get("reverts") in _REVERTING
            and manager.get("object") not in below
        ):
            return manager
    return None


def _kept_in_a_file(pod):
    """The file that holds the pod, where no object of the cluster does, in words; else None."""
    workload = pod.get("workload") or {}
    if workload.get("edit") is not None or not workload.get("kind"):
        return None
    if workload["kind"] == "Node":
        return f"the static pod's manifest on node {workload.get('name')}"
    tools = [
        manager.get("tool") for manager in workload.get("managers") or [] if manager.get("proof") == "proof"
    ]
    return f"the file that was given to {tools[0]}" if workload["kind"] == "Pod" and tools else None


def _has_template(pod):
    workload = pod.get("workload") or {}
    edit = workload.get("edit") or workload
    return edit.get("kind") in _RESIZABLE_KINDS


def _edit(pod, what):
    edited = edited_object(pod)
    if edited.partition("/")[0] in _IMMUTABLE_KINDS:
        return _recreate(pod, edited, what)
    return f"kubectl{namespace_option(pod)} edit {edited}  # {what}"


def _recreate(pod, edited, what):
    """An object that can't be changed in place: save it, change the file, replace it."""
    ns, file = namespace_option(pod), shlex.quote(edited.partition("/")[2] + ".yaml")
    return (
        f"kubectl{ns} get {edited} -o yaml > {file}  # in that file {what}; then kubectl{ns} replace --force "
        f"-f {file}, for it cannot be edited in place"
    )


def _delete(pod):
    """A pod with an owner is made anew when it is deleted; without one it would be gone."""
    if edited_object(pod).startswith("pod/"):
        return _recreate(pod, edited_object(pod), "change what is needed")
    return f"kubectl{namespace_option(pod)} delete pod {pod['name']}"


def command_for(change, pod, container):
    """How to make ``change`` by hand for a container of ``pod``: one line, or None for what no command does."""
    if not in_cluster(pod):
        return _without_cluster(change)
    manager = reverting_manager(pod)
    if manager and change["target"] in ("flag", "env", "k8s"):
        return (
            f"change it in the source of {manager.get('tool')} ({manager.get('object')}): "
            f"{_in_words(change)}; a live edit would be reverted"
        )
    file = _kept_in_a_file(pod)
    if file and change["target"] in ("flag", "env", "k8s"):
        return f"change it in {file}: {_in_words(change)}"
    return _COMMANDS[change["target"]](change, pod, container)


def _without_cluster(change):
    """The change as it is written where no cluster is known: on the command line, in the environment."""
    value = change.get("value")
    if (
        change["target"] == "flag"
        and change["direction"] != "remove"
        and (value is not None or change["direction"] == "add")
    ):
        option = "--" + change["name"].lstrip("-").replace("_", "-")
        return f"vllm serve MODEL … {option}" + (
            "" if value in (None, True) else f" {shlex.quote(str(value))}"
        )
    if change["target"] == "env" and change["direction"] != "remove" and value is not None:
        return f"export {change['name']}={shlex.quote(str(value))}"
    return None


def _in_words(change):
    """``remove resources.limits.cpu``, ``set MAX_JOBS to 2``."""
    value = change.get("value")
    return f"{change['direction']} {change['name']}" + ("" if value is None else f" to {value}")


def _flag(change, pod, container):
    option = "--" + change["name"].lstrip("-").replace("_", "-")
    if change["direction"] == "remove":
        return _edit(pod, f"container {container['name']}: remove {option}")
    if change["direction"] == "add" and change.get("value") in (None, True):
        return _edit(pod, f"container {container['name']}: add {option}")
    value = change.get("value")
    if value is None:
        return _edit(pod, f"container {container['name']}: {change['direction']} {option}")
    return _edit(pod, f"container {container['name']}: set {option}={value}")


def _env(change, pod, container):
    where = f"kubectl{namespace_option(pod)} set env {edited_object(pod)} -c {container['name']}"
    if not _has_template(pod):
        return _edit(pod, f"container {container['name']}: {_in_words(change)}")
    if change["direction"] == "remove":
        return f"{where} {change['name']}-"
    value = change.get("value")
    if value is None and is_secret(change["name"]):
        return f"{where} --from=secret/SECRET  # the Secret holds the key {change['name']}"
    setting = change["name"] + "=" + ("VALUE" if value is None else str(value))
    return f"{where} {shlex.quote(setting)}"


def _above_limit(container, resource, value):
    """Whether a request would go over the container's limit, which the API server refuses."""
    limits = (container.get("resources") or {}).get("limits") or {}
    limit, asked = quantity_bytes(limits.get(resource)), quantity_bytes(value)
    return bool(limit and asked and asked > limit)


def _k8s(change, pod, container):
    name, value = change["name"], change.get("value")
    if name.startswith("resources.") and _has_template(pod):
        _resources, bound, resource = name.split(".", 2)
        if change["direction"] == "remove":
            patch = {
                "spec": {
                    "template": {
                        "spec": {
                            "containers": [
                                {"name": container["name"], "resources": {bound: {resource: None}}}
                            ]
                        }
                    }
                }
            }
            return f"kubectl{namespace_option(pod)} patch {edited_object(pod)} --type=strategic -p {shlex.quote(json.dumps(patch))}"
        if value is not None:
            raised = ""
            if bound == "requests" and _above_limit(container, resource, value):
                raised = f" --limits={resource}={value}"
            return (
                f"kubectl{namespace_option(pod)} set resources {edited_object(pod)} -c {container['name']} "
                f"--{bound}={resource}={value}{raised}"
            )
    words = _K8S_EDITS.get(name)
    if words and value is not None:
        return _edit(pod, f"container {container['name']}: {words.format(value=value)}")
    return _edit(pod, f"container {container['name']}: {_in_words(change)}")


def _never_placed(pod):
    return not pod.get("node") and pod.get("pod_phase") == "Pending"


def _action(change, pod, container):
    if change["name"] in ("recreate_pod", "restart_pod"):
        return _delete(pod)
    if change["name"] == "rollback_revision" and not _has_template(pod):
        return None
    if change["name"] == "free_gpu" and _never_placed(pod):
        return "kubectl describe nodes | grep -A 8 'Allocated resources'"
    template = _ACTIONS.get(change["name"])
    if template is None:
        return None
    return template.format(
        ns=namespace_option(pod),
        pod=pod["name"],
        object=edited_object(pod),
        container=container["name"],
        node=pod.get("node") or "NODE",
    )


_COMMANDS = {"flag": _flag, "env": _env, "k8s": _k8s, "action": _action}
_ACTIONS = {
    "free_gpu": "kubectl{ns} exec {pod} -c {container} -- nvidia-smi  # on the node it also lists the processes",
    "read_gpu_memory": "kubectl{ns} exec {pod} -c {container} -- nvidia-smi --query-gpu=memory.total,memory.used,memory.free --format=csv",
    "rollback_revision": "kubectl{ns} rollout undo {object}",
    "read_earlier_log": "kubectl{ns} logs {pod} -c {container} --previous | grep -n -m 20 -E 'Error|error|Traceback'",
    "read_last_state": "kubectl{ns} describe pod {pod}",
    "read_kernel_log": "kubectl debug node/{node} -it --image=busybox -- chroot /host dmesg -T | grep -i -E 'oom|killed process'",
    "find_sender": "kubectl{ns} get events --field-selector involvedObject.name={pod} --sort-by=.lastTimestamp",
    "compare_process_memory": "kubectl{ns} exec {pod} -c {container} -- ps -eo pid,rss,comm --sort=-rss",
    "judge_by_anonymous_memory": "kubectl{ns} exec {pod} -c {container} -- cat /sys/fs/cgroup/memory.stat",
    "clear_shm": "kubectl{ns} exec {pod} -c {container} -- ls -la /dev/shm",
    "check_memory_view": "kubectl{ns} exec {pod} -c {container} -- nvidia-smi -q -d MEMORY",
}


def _show_lines(file, line):
    """The command that shows a line of a log file with its surroundings."""
    window = f"'{max(1, line - 10)},{line + 10}p'"
    if file.endswith(".gz"):
        return f"zcat {shlex.quote(file)} | sed -n {window}"
    return f"sed -n {window} {shlex.quote(file)}"


_STATUS_FIELDS = {
    "init": "{.status.initContainerStatuses}",
    "main": "{.status.containerStatuses}",
    # A sidecar is an init container that keeps running, or one of the others.
    "sidecar": "{.status.initContainerStatuses}{.status.containerStatuses}",
}


def _is_previous(container, attempt):
    """Whether the log of an attempt (its index, None: the last that ended) is the one before the current."""
    attempts = container.get("attempts") or []
    if attempt is None:
        ended = [item["index"] for item in attempts if item.get("state") == "terminated"]
        attempt = ended[-1] if ended else None
    if attempt is None:
        return (container.get("restart_count") or 0) > 0
    return attempt < max((item["index"] for item in attempts), default=attempt)


# What shows the counters of a cgroup, by its version; where that is unknown, the newer.
_CGROUP_FILES = {
    1: ("memory/memory.oom_control", "memory/memory.stat", "cpu/cpu.stat"),
    2: ("memory.events", "memory.stat", "cpu.stat"),
}


def _cgroup_files(container):
    versions = [(run.get("cgroup") or {}).get("version") for run in (container or {}).get("attempts") or []]
    names = _CGROUP_FILES[1 if 1 in versions else 2]
    return " ".join(f"/sys/fs/cgroup/{name}" for name in names)


def checks(pod, container, proofs, source=None, attempt=None):
    """The commands that show the proofs of a finding again, each once.

    source: path of the log of a pod without a cluster. attempt: index of the attempt that the proofs are about.
    """
    if not in_cluster(pod):
        lines = [item["line"] for item in proofs if item["source"] == "log" and item.get("line")]
        return [_show_lines(source, line) for line in lines[:1]] if source else []
    ns, name = namespace_option(pod), pod["name"]
    previous = " --previous" if _is_previous(container, attempt) else ""
    status = _STATUS_FIELDS.get(container.get("role") or "main", _STATUS_FIELDS["main"])
    by_source = {
        "log": f"kubectl{ns} logs {name} -c {container['name']}{previous}",
        "status": f"kubectl{ns} get pod {name} -o jsonpath='{status}'",
        "event": f"kubectl{ns} get events --field-selector involvedObject.name={name}",
        "spec": f"kubectl{ns} get pod {name} -o yaml",
        "kernel": _ACTIONS["read_kernel_log"].format(node=pod.get("node") or "NODE"),
        "cgroup": f"kubectl{ns} exec {name} -c {container['name']} -- cat {_cgroup_files(container)}",
        "node": f"kubectl describe node {pod.get('node') or 'NODE'}",
        "workload": f"kubectl{ns} get {edited_object(pod)} -o yaml",
    }
    shown = []
    for item in proofs:
        command = by_source.get(item["source"])
        if command and command not in shown:
            shown.append(command)
    return shown

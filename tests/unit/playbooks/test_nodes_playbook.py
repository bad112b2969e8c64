# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-playbook playbooks/check_gpu_nodes.yml` over simulated nodes, and the diagnosis that looks at a pod's node."""

from __future__ import annotations

import json
import stat
import sys

import pytest
import yaml
from test_diagnose_playbook import EXAMPLES, ROOT, run

PLAYBOOK = ROOT / "playbooks" / "check_gpu_nodes.yml"
RECORDED = ROOT / "tests" / "unit" / "evidence" / "smi"
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
# A port on which nobody listens.
UNREACHABLE = {
    "ansible_connection": "ssh",
    "ansible_host": "127.0.0.1",
    "ansible_port": 1,
    "ansible_ssh_common_args": "-o BatchMode=yes",
}

# Read by every Python that starts with its folder in PYTHONPATH.
NO_KMSG = """
import builtins, os

def refusing(call):
    def guarded(path, *args, **kwargs):
        if path == "/dev/kmsg":
            raise PermissionError(1, "Operation not permitted")
        return call(path, *args, **kwargs)
    return guarded

os.open, builtins.open = refusing(os.open), refusing(builtins.open)
"""


def replay(folder, name):
    """A program that prints what nvidia-smi printed in a recorded situation."""
    program = folder / f"nvidia-smi-{name}"
    complaint = RECORDED / f"{name}.stderr.txt"
    says = f"cat {complaint} >&2; " if complaint.exists() else ""
    return write_program(
        program, f'#!/bin/sh\ncase "$*" in "-q -x") {says}exec cat {RECORDED / name}.xml ;; esac\n'
    )


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


def inventory(folder, **hosts):
    path = folder / "inventory.yml"
    path.write_text(yaml.safe_dump({"gpu_nodes": {"hosts": hosts}}))
    return path


def local(folder, name):
    """A host on this machine with a replayed nvidia-smi."""
    return dict(LOCAL, vllm_smi=str(replay(folder, name)))


def check(hosts, *extra, limit=(), **more):
    options = [part for item in extra for part in ("-e", f"vllm_oom_{item}")]
    smi = ("-e", json.dumps({"vllm_oom_nvidia_smi": "{{ vllm_smi | default('') }}"}))
    return run("-i", hosts, *limit, PLAYBOOK, *smi, *options, **more)


def failure(done):
    return " ".join(done.stdout[done.stdout.rindex("fatal:") :].split())


def rows(done):
    """``{node: its row}`` of the table."""
    lines = done.stdout.splitlines()
    head = next(number for number, line in enumerate(lines) if "used/total GiB" in line)
    found = {}
    for line in lines[head + 1 :]:
        if not line.strip():
            break
        if not line.startswith(" " * 14):
            found[line.split()[0]] = line
    return found


@pytest.fixture
def fleet(tmp_path):
    return inventory(
        tmp_path,
        sound=local(tmp_path, "nvswitch-8"),
        lost=local(tmp_path, "lost-named"),
        dark=UNREACHABLE,
        odd=dict(LOCAL, ansible_python_interpreter="/nowhere/python"),
    )


def test_a_fleet_in_one_table_worst_first(fleet, tmp_path):
    out = tmp_path / "out"
    done = check(fleet, f"output_dir={out}", "batch=2")
    assert done.returncode == 0, done.stdout
    shown = rows(done)
    assert next(iter(shown)) == "lost"
    assert set(shown) == {"lost", "sound", "dark", "odd"}
    assert "570.158.01" in shown["sound"]
    assert "bad" in shown["lost"]
    assert "Not known: Failed to connect to the host via ssh" in done.stdout
    assert "'/nowhere/python' was not found" in done.stdout
    assert "GPU 3: Unable to determine the device handle" in done.stdout
    assert sorted(path.name for path in out.iterdir()) == ["diagnosis.json", "nodes.md"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o600}
    nodes = json.loads((out / "diagnosis.json").read_text())["nodes"]
    assert [node["name"] for node in nodes if node["state"] == "bad"] == ["lost"]
    # One task a node: neither facts nor anything else is read there.
    assert "ok=1 " in next(line for line in done.stdout.splitlines() if line.startswith("sound "))


@pytest.mark.parametrize(
    ("fail_on", "words"),
    [
        ("bad", "1 of 4 nodes fail this run because vllm_oom_fail_on is bad: lost."),
        ("any", "because vllm_oom_fail_on is any: lost, "),
    ],
)
def test_bad_nodes_fail_the_run_when_asked(fleet, fail_on, words):
    done = check(fleet, f"fail_on={fail_on}", "formats=console")
    assert done.returncode == 2
    assert words in failure(done)


def test_a_kernel_log_that_was_not_read_is_no_sound_node_for_any(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("journalctl", "dmesg"):
        write_program(tools / name, "#!/bin/sh\necho 'Operation not permitted' >&2; exit 1\n")
    # Root may read /dev/kmsg, and tests may run as root.
    (tools / "sitecustomize.py").write_text(NO_KMSG)
    hosts = inventory(tmp_path, sound=local(tmp_path, "idle"))
    refused = {"PATH": f"{tools}:/usr/bin:/bin", "PYTHONPATH": str(tools)}
    done = check(hosts, "fail_on=any", **refused)
    assert " fine" in rows(done)["sound"]
    assert "kernel log not read" in done.stdout
    assert done.returncode == 2
    assert "1 of 1 nodes fail this run because vllm_oom_fail_on is any: sound." in failure(done)
    assert check(hosts, "fail_on=bad", **refused).returncode == 0


def test_a_limit_leaves_the_others_out(fleet):
    done = run(
        "-i",
        fleet,
        "--limit",
        "lost,localhost",
        PLAYBOOK,
        "-e",
        json.dumps({"vllm_oom_nvidia_smi": "{{ vllm_smi }}"}),
    )
    assert done.returncode == 0, done.stdout
    assert set(rows(done)) == {"lost"}


def test_a_limit_without_the_machine_that_reports_is_refused(fleet):
    done = check(fleet, "fail_on=any", limit=("--limit", "sound"))
    assert done.returncode == 2
    assert "leaves out localhost" in failure(done)
    assert '-e "vllm_oom_hosts=sound"' in failure(done)


def test_values_as_the_module_takes_them_pass(tmp_path):
    hosts = inventory(tmp_path, sound=local(tmp_path, "nvswitch-8"))
    done = check(hosts, "since=1d12h", "timeout=7.5", "batch=50%")
    assert done.returncode == 0, done.stdout
    assert set(rows(done)) == {"sound"}


def test_without_an_inventory_nothing_is_guessed():
    done = run(PLAYBOOK)
    assert done.returncode == 2
    assert "No inventory was given (-i)" in failure(done)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("hots=x",), "vllm_oom_hots is no variable of this playbook"),
        (("fail_on=warning",), "vllm_oom_fail_on must be none or bad or any, not warning"),
        (("formats=pdf",), "vllm_oom_formats must name only console, markdown, json, not pdf"),
        (("hosts=nobody",), "No host was checked: nobody names none"),
        (("since=yesterday",), "vllm_oom_since must be a duration such as 24h"),
        (("timeout=0",), "vllm_oom_timeout must be a number of seconds, more than 0 and at most 300, not 0."),
        (("timeout=-5",), "at most 300, not -5."),
        (("timeout=300.5",), "at most 300, not 300.5."),
        (("timeout=abc",), "at most 300, not abc."),
        (("batch=abc",), "vllm_oom_batch must be a number of hosts, at least 1, or a percentage, not abc."),
        (("batch=0",), "or a percentage, not 0."),
        (("formats=markdown",), "vllm_oom_formats names markdown, which is only saved"),
    ],
)
def test_bad_input_is_one_clear_sentence(tmp_path, extra, words):
    done = check(inventory(tmp_path, dark=UNREACHABLE), *extra)
    assert done.returncode == 2
    assert words in failure(done)
    assert "Traceback" not in done.stdout


# -- the diagnosis of a pod looks at its node -----------------------------------------------------------------------------


def diagnose(hosts, *extra, **more):
    given = (f"bundle={EXAMPLES / 'gpu-weights'}", *extra)
    options = [part for item in given for part in ("-e", f"vllm_oom_{item}")]
    return run("-i", hosts, ROOT / "diagnose-oom.yml", *options, **more)


def test_the_node_of_the_pod_is_looked_at(tmp_path):
    # The pod of the example ran on gpu-node-07; the inventory may know it, be unable to reach it, or not know it.
    smi = replay(tmp_path, "zombie-no-process")
    (tmp_path / "nvidia-smi").symlink_to(smi)
    out = tmp_path / "out"
    hosts = inventory(tmp_path, **{"gpu-node-07": LOCAL})
    done = diagnose(hosts, "nodes=inventory", f"output_dir={out}", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 0, done.stdout
    assert "1 node checked: 1 bad." in done.stdout
    (node,) = json.loads((out / "diagnosis.json").read_text())["nodes"]
    assert (node["name"], node["state"]) == ("gpu-node-07", "bad")
    assert (out / "nodes.json").exists()


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ({"gpu-node-07": UNREACHABLE}, "Not known: Failed to connect to the host via ssh"),
        ({"other": LOCAL}, "Not known: no host of the inventory has this name."),
    ],
)
def test_a_node_that_can_not_be_looked_at_is_named_and_the_pod_is_diagnosed(tmp_path, hosts, words):
    done = diagnose(inventory(tmp_path, **hosts), "nodes=inventory")
    assert done.returncode == 0, done.stdout
    assert "gpu_weights_oom" in done.stdout
    assert words in done.stdout


def test_nodes_are_left_alone_unless_asked(tmp_path):
    done = diagnose(inventory(tmp_path, **{"gpu-node-07": UNREACHABLE}))
    assert done.returncode == 0, done.stdout
    assert "checked" not in done.stdout
    assert "UNREACHABLE" not in done.stdout


def test_another_way_to_look_at_nodes_is_refused(tmp_path):
    done = diagnose(inventory(tmp_path), "nodes=exec")
    assert done.returncode == 2
    assert "vllm_oom_nodes must be none or inventory, not exec" in failure(done)

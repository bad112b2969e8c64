# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-playbook diagnose-oom.yml` as a person runs it: what it prints and saves, and how it ends on bad input."""

from __future__ import annotations

import copy
import gzip
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.recorded_api import RecordedApi

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "docs" / "examples"
ANSIBLE_PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"

SECRETS = {
    "env": "hf_QzR4vT9wLkPmNbXcJdYsEaUg",
    "argument": "sk-live-7d1e9c3b5a8f4e2d",
    "url": "s3cretpassw0rd",
    "annotation": "ghp_0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX",
    "header": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ1c2VyIn0.s5dTQ6pXzV0kq3bYw1uJ",
    "prompt": "my-private-diagnosis-is-diabetes",
}


def run(*arguments, stdin=subprocess.DEVNULL, cwd=ROOT, **environment):
    """Run ansible-playbook with this checkout's configuration; the result has ``returncode`` and ``stdout``."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANSIBLE_", "K8S_AUTH_", "KUBECONFIG"))
    }
    environment = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
        "PWD": str(cwd),
        **environment,
    }
    return subprocess.run(
        [str(ANSIBLE_PLAYBOOK), *map(str, arguments)],
        cwd=cwd,
        env={**kept, **environment},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )


def diagnose(*extra, **more):
    options = [part for name_and_value in extra for part in ("-e", f"vllm_oom_{name_and_value}")]
    return run(ROOT / "diagnose-oom.yml", *options, **more)


def test_a_bundle_is_shown_and_saved(tmp_path):
    out = tmp_path / "report"
    done = diagnose(
        f"bundle={EXAMPLES / 'max-model-len'}",
        f"output_dir={out}",
        ANSIBLE_CALLBACK_RESULT_FORMAT="yaml",
    )
    assert done.returncode == 0, done.stdout
    assert "\n        llm/qwen3-32b-0: kv_max_len (certain)\n" in done.stdout
    assert "lower --max-model-len to 18224" in done.stdout
    assert sorted(path.name for path in out.iterdir()) == [
        "budget.json",
        "diagnosis.json",
        "evidence.json",
        "report.md",
    ]
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o600}
    # Saved evidence is a bundle itself, and says the same again.
    again = diagnose(
        "bundle=evidence.json",
        f"output_dir={out}/again",
        "formats=json",
        cwd=out,
        ANSIBLE_DISPLAY_OK_HOSTS="0",
    )
    assert again.returncode == 0, again.stdout
    assert sorted(path.name for path in (out / "again").iterdir()) == [
        "budget.json",
        "diagnosis.json",
        "evidence.json",
    ]
    assert json.loads((out / "again/diagnosis.json").read_text()) == json.loads(
        (out / "diagnosis.json").read_text()
    )


def test_check_mode_shows_the_same_and_saves_nothing(tmp_path):
    done = run(
        ROOT / "diagnose-oom.yml",
        "--check",
        "-e",
        f"vllm_oom_bundle={EXAMPLES / 'dev-shm'}",
        "-e",
        f"vllm_oom_output_dir={tmp_path / 'report'}",
    )
    assert done.returncode == 0, done.stdout
    assert "shm_exhausted (certain)" in done.stdout
    assert not (tmp_path / "report").exists()


def test_an_existing_directory_keeps_its_mode(tmp_path):
    tmp_path.chmod(0o755)
    done = diagnose(f"bundle={EXAMPLES / 'dev-shm'}", f"output_dir={tmp_path}", "formats=markdown")
    assert done.returncode == 0, done.stdout
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]


def test_a_finding_fails_the_run_only_when_asked():
    done = diagnose(f"bundle={EXAMPLES / 'probe-kill'}", "fail_on=certain")
    assert done.returncode == 0, done.stdout
    done = diagnose(f"bundle={EXAMPLES / 'probe-kill'}", "fail_on=likely")
    assert done.returncode == 2
    assert (
        "1 finding(s) fail this run because diagnose_fail_on is likely; the causes are probe_kill."
        in " ".join(done.stdout.split())
    )
    assert "probe_kill (likely)" in done.stdout


def test_standard_input_is_a_bundle():
    with (EXAMPLES / "kv-no-blocks.log").open("rb") as log:
        cat = subprocess.Popen(["cat"], stdin=log, stdout=subprocess.PIPE)
        done = diagnose("bundle=-", stdin=cat.stdout)
        cat.stdout.close()
        cat.wait(10)
    assert done.returncode == 0, done.stdout
    assert "kv_no_blocks (certain)" in done.stdout


def test_no_standard_input_is_said():
    done = diagnose("bundle=-")
    assert done.returncode == 2
    assert "standard input: nothing came: pipe the log into this command" in done.stdout


def test_the_playbook_checks_what_the_role_would():
    """It turns the role's own validation off."""
    meta = yaml.safe_load((ROOT / "roles/diagnose/meta/argument_specs.yml").read_text(encoding="utf-8"))
    options = {
        name.removeprefix("diagnose_"): option
        for name, option in meta["argument_specs"]["main"]["options"].items()
    }
    checks = yaml.safe_load((ROOT / "playbooks/diagnose_oom.yml").read_text(encoding="utf-8"))[0]["vars"]
    assert not any(option.get("required") for option in options.values())
    assert set(options) == set(checks["_playbook_variables"])
    assert checks["_playbook_formats"] == options["formats"].pop("choices")
    choices = {name: option["choices"] for name, option in options.items() if "choices" in option}
    choices.update({name: ["true", "false"] for name, option in options.items() if option["type"] == "bool"})
    assert checks["_playbook_choices"] == {name: [*values, ""] for name, values in choices.items()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """An API server with the failed pod of an example, and the path of its kubeconfig."""
    pod = yaml.safe_load((EXAMPLES / "gpu-weights/pod.yaml").read_text(encoding="utf-8"))
    web = copy.deepcopy(pod)
    web["metadata"].update(namespace="web", name="nginx-0", labels={}, ownerReferences=[])
    web["spec"]["containers"] = [{"name": "nginx", "image": "nginx:1.29"}]
    api = RecordedApi([pod, web])
    api.add_log("llm", pod["metadata"]["name"], "vllm", (EXAMPLES / "gpu-weights/vllm.log").read_bytes())
    kubeconfig = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    with api.serve():
        kubeconfig.write_text(json.dumps(api.kubeconfig()), encoding="utf-8")
        yield api, kubeconfig


def test_a_cluster_is_diagnosed(cluster):
    _api, kubeconfig = cluster
    # The pod died in 2025: looked at by name, or as far back as that.
    done = diagnose("namespace=llm", "since=3650d", K8S_AUTH_KUBECONFIG=str(kubeconfig))
    assert done.returncode == 0, done.stdout
    assert "llm/llama-70b-7c9d5b6f4-x2x8p: gpu_weights_oom (" in done.stdout


def test_a_refused_log_is_named_and_the_run_goes_on(cluster):
    api, kubeconfig = cluster
    api.fail("/log", status=403, message="pods/log is forbidden", times=20)
    done = diagnose(f"kubeconfig={kubeconfig}", "pod=llama-70b-7c9d5b6f4-x2x8p")
    api.faults.clear()
    assert done.returncode == 0, done.stdout
    shown = " ".join(done.stdout.split())
    assert "Could not be read:" in shown
    assert re.search(r"needs [^)]*pods/log", shown)
    assert api.token not in done.stdout


def test_a_namespace_without_vllm_names_what_is_there(cluster):
    _api, kubeconfig = cluster
    done = diagnose(f"kubeconfig={kubeconfig}", "namespace=web")
    assert done.returncode == 2
    assert "nginx" in done.stdout
    assert "Traceback" not in done.stdout


def test_no_cluster_is_said(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "nowhere",
                "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "me"}}],
                "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "me", "user": {"token": SECRETS["header"]}}],
            }
        ),
        encoding="utf-8",
    )
    done = diagnose(f"kubeconfig={kubeconfig}", "namespace=llm")
    assert done.returncode == 2
    assert "127.0.0.1:9" in done.stdout
    assert "Traceback" not in done.stdout
    assert SECRETS["header"] not in done.stdout


def bad_bundles(folder):
    """Name -> a file or directory that can't be diagnosed."""
    folder.mkdir()
    (folder / "empty-directory").mkdir()
    (folder / "useless").mkdir()
    (folder / "useless/values.yaml").write_text("replicas: 2\nimage: nginx\n", encoding="utf-8")
    (folder / "useless/notes.txt").write_text("nothing happened today\n", encoding="utf-8")
    (folder / "useless/logo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    (folder / "binary").write_bytes(bytes(range(256)) * 64)
    (folder / "malformed.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: [\n", encoding="utf-8"
    )
    (folder / "other.json").write_text('{"schema": "vllm_runbook.oom/evidence/v9"}', encoding="utf-8")
    return [
        "missing",
        "empty-directory",
        "useless",
        "binary",
        "malformed.yaml",
        "other.json",
    ]


def test_bad_input_is_one_sentence(tmp_path):
    names = bad_bundles(tmp_path / "bad")
    playbook = tmp_path / "bad.yml"
    playbook.write_text(
        json.dumps(
            [
                {
                    "hosts": "localhost",
                    "gather_facts": False,
                    "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
                    "tasks": [
                        {
                            "name": "Read what can't be read",
                            "vllm_runbook.oom.evidence_info": {
                                "bundle": str(tmp_path / "bad") + "/{{ item }}"
                            },
                            "loop": names,
                            "register": "read",
                            "ignore_errors": True,
                        },
                        {
                            "name": "Keep what was said",
                            "ansible.builtin.copy": {
                                "dest": str(tmp_path / "said.json"),
                                "content": "{{ read.results | to_json }}",
                                "mode": "0600",
                            },
                        },
                    ],
                }
            ]
        ),
        encoding="utf-8",
    )
    done = run(playbook)
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout
    said = {item["item"]: item for item in json.loads((tmp_path / "said.json").read_text())}
    assert sorted(said) == sorted(names)
    for name, item in said.items():
        assert item["failed"], name
        message = item["msg"]
        # What and where, then what to do, on one line.
        assert name in message
        assert "\n" not in message
        assert len(message) < 600


def test_what_is_left_of_a_truncated_file_is_diagnosed(tmp_path):
    whole = gzip.compress((EXAMPLES / "gpu-weights/vllm.log").read_bytes())
    (tmp_path / "truncated.log.gz").write_bytes(whole[: len(whole) * 9 // 10])
    done = diagnose(f"bundle={tmp_path / 'truncated.log.gz'}")
    assert done.returncode == 0, done.stdout
    shown = " ".join(done.stdout.split())
    assert "truncated.log.gz: gzip data ends early" in shown
    assert "gpu_weights_oom" in shown


def test_a_template_in_a_log_is_only_text(tmp_path):
    log = (EXAMPLES / "gpu-weights/vllm.log").read_text(encoding="utf-8")
    template = "{{ lookup('ansible.builtin.pipe', 'touch " + str(tmp_path / "run") + "') }}"
    (tmp_path / "vllm.log").write_text(log.replace("CUDA out of memory.", "CUDA out of memory. " + template))
    done = diagnose(
        f"bundle={tmp_path / 'vllm.log'}", f"output_dir={tmp_path / 'report'}", "formats=console,markdown"
    )
    assert done.returncode == 0, done.stdout
    assert "{{ lookup(" in " ".join(done.stdout.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["missing", "empty-directory"])
def test_the_playbook_ends_with_that_sentence(name, tmp_path):
    bad_bundles(tmp_path / "bad")
    done = diagnose(f"bundle={tmp_path / 'bad' / name}")
    assert done.returncode == 2
    assert f"{tmp_path / 'bad' / name}: " in " ".join(done.stdout.split())
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (["exec=sometimes"], "vllm_oom_exec must be never or running, not sometimes."),
        (["all_namespaces=maybe"], "vllm_oom_all_namespaces must be true or false, not maybe."),
        (["formats=console,html"], "vllm_oom_formats must name only console, markdown, json, not html."),
        (
            [f"bundle={EXAMPLES / 'nccl-oom.log'}", "since=abc"],
            "since: 'abc' is no duration: give one such as 24h",
        ),
        # it would be ignored, and the context's namespace diagnosed
        (["namspace=llm"], "vllm_oom_namspace is no variable of this playbook"),
        (
            ["bundle=x.log", "namespace=llm"],
            "vllm_oom_bundle and vllm_oom_namespace exclude each other: give only one of them.",
        ),
        (
            ["pod=vllm-0", "all_namespaces=yes"],
            "vllm_oom_pod and vllm_oom_all_namespaces exclude each other: give only one of them.",
        ),
    ],
)
def test_a_wrong_variable_is_one_sentence(extra, sentence):
    done = diagnose(*extra)
    assert done.returncode != 0
    assert sentence in " ".join(done.stdout.split())
    assert len(done.stdout.splitlines()) < 30


@pytest.fixture(scope="module")
def leaky(tmp_path_factory):
    """A bundle with a secret wherever users put them."""
    folder = tmp_path_factory.mktemp("leaky")
    log = (EXAMPLES / "gpu-weights/vllm.log").read_text(encoding="utf-8").splitlines()
    log[2:2] = [
        f"(APIServer pid=1) INFO 10-25 13:04:52 [utils.py:233] non-default args: {{'api_key': ['{SECRETS['argument']}'], "
        f"'model': 'meta-llama/Llama-3.1-70B-Instruct'}}",
        f"(APIServer pid=1) ERROR 10-25 13:04:53 [api.py:1] request failed: GET https://user:{SECRETS['url']}@hf.example/api",
        f"(APIServer pid=1) ERROR 10-25 13:04:53 [api.py:1] headers: Authorization: Bearer {SECRETS['header']}",
        f"(APIServer pid=1) INFO 10-25 13:04:54 [logger.py:41] Received request cmpl-1: prompt: '{SECRETS['prompt']}', "
        "params: SamplingParams(n=1), prompt_token_ids: [1, 2, 3], lora_request: None.",
    ]
    (folder / "vllm.log").write_text("\n".join(log) + "\n", encoding="utf-8")
    pod = (EXAMPLES / "gpu-weights/pod.yaml").read_text(encoding="utf-8")
    pod = pod.replace(
        "  labels:\n",
        f"  annotations:\n    deploy-token: {SECRETS['annotation']}\n    helm.sh/notes: {SECRETS['annotation']}\n  labels:\n",
        1,
    )
    pod = pod.replace(
        '        - "8192"\n', f'        - "8192"\n        - --api-key={SECRETS["argument"]}\n', 1
    )
    pod = pod.replace(
        "        - name: HF_TOKEN\n",
        f"        - name: HUGGING_FACE_HUB_TOKEN\n          value: {SECRETS['env']}\n"
        f"        - name: HF_ENDPOINT\n          value: https://user:{SECRETS['url']}@hf.example\n"
        "        - name: HF_TOKEN\n",
        1,
    )
    (folder / "pod.yaml").write_text(pod, encoding="utf-8")
    for name in SECRETS:
        assert SECRETS[name] in "\n".join(log) + pod
    return folder


def test_no_secret_is_shown_or_saved(leaky, tmp_path):
    done = run(
        ROOT / "diagnose-oom.yml",
        "-vvv",
        "-e",
        f"vllm_oom_bundle={leaky}",
        "-e",
        f"vllm_oom_output_dir={tmp_path / 'report'}",
    )
    assert done.returncode == 0, done.stdout
    assert "gpu_weights_oom" in done.stdout
    written = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "report").iterdir()}
    assert len(written) == 4
    for where, text in {"stdout": done.stdout, **written}.items():
        for name, secret in SECRETS.items():
            assert secret not in text, f"{name} in {where}"

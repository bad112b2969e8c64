// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

var played = []string{"0.8.5", "0.8.5.post1", "0.9.0", "0.9.1", "0.9.2", "0.10.1", "0.10.1.1", "0.10.2", "0.11.0", "0.11.2", "0.13.0", "0.14.1", "0.17.1", "0.19.1", "0.20.2", "0.22.1", "0.25.1", "0.27.1", "0.28.0", "0.29.0", "0.31.0", "0.33.0"}

type quitWith int

// play runs a start up to its last phase and returns what it printed and the exit code; -1 without one.
func play(t *testing.T, version, args string) (printed string, code int) {
	t.Helper()
	t.Setenv("STANDIN_VLLM_VERSION", version)
	t.Setenv("STANDIN_STEP", "0")
	f, err := parseFlags(strings.Fields(args))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	e, err := newEngine(f, &out, &out)
	if err != nil {
		t.Fatalf("vLLM %s, %s: %v", version, args, err)
	}
	e.quit = func(code int) { panic(quitWith(code)) }
	code = -1
	func() {
		defer func() {
			switch reason := recover().(type) {
			case nil:
			case quitWith:
				code = int(reason)
			default:
				panic(reason)
			}
		}()
		e.prepare()
	}()
	return out.String(), code
}

func match(t *testing.T, version, printed, pattern string) []string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(printed)
	if found == nil {
		t.Errorf("vLLM %s: nothing like %s in\n%s", version, pattern, printed)
		return make([]string, 9)
	}
	return found
}

func absent(t *testing.T, version, printed, pattern string) {
	t.Helper()
	if found := regexp.MustCompile(pattern).FindString(printed); found != "" {
		t.Errorf("vLLM %s prints %q", version, found)
	}
}

func TestMessagesHavePlaces(t *testing.T) {
	for _, version := range played {
		for name, m := range messages {
			v := mustRelease(version)
			if m.text.at(v) != "" && m.place.at(v) == "" {
				t.Errorf("vLLM %s: %q has no place", version, name)
			}
		}
	}
}

func TestServingLines(t *testing.T) {
	t.Setenv("STANDIN_GPU", "H100 80GB")
	for _, version := range played {
		v := mustRelease(version)
		printed, code := play(t, version, "meta-llama/Llama-3.1-8B-Instruct --gpu-memory-utilization 0.95 --max-model-len 8192 --api-key sk-secret")
		if code != -1 {
			t.Errorf("vLLM %s: exit code %d", version, code)
		}
		match(t, version, printed, `(?:vLLM API server version |vLLM server version |version )`+regexp.QuoteMeta(version)+`\b`)
		match(t, version, printed, `Initializing a V1 LLM engine \(v`+regexp.QuoteMeta(version)+`\) with config: `)
		if got := match(t, version, printed, `(?:Loading model weights|Model loading) took ([\d.]+) Gi?B`)[1]; !strings.HasPrefix(got, "14.99") {
			t.Errorf("vLLM %s: weights %s", version, got)
		}
		if v.before(mustRelease("0.9.1")) {
			absent(t, version, printed, `Available KV cache memory`)
		} else if got := match(t, version, printed, `Available KV cache memory: (-?\d+(?:\.\d+)?) GiB`)[1]; got != "58.11" {
			t.Errorf("vLLM %s: %s GiB", version, got)
		}
		size := match(t, version, printed, `([A-Z]+(?: \+ host)?) KV cache size: ([\d,]+) tokens`)
		times := match(t, version, printed, `Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x`)
		if size[2] != "476,000" || times[1] != "8,192" || times[2] != "58.11" {
			t.Errorf("vLLM %s: %v %v", version, size, times)
		}
		if one := strings.Contains(printed, "tokens, Maximum"); one == v.before(mustRelease("0.28.0")) {
			t.Errorf("vLLM %s: size and concurrency in one line: %v", version, one)
		}
		match(t, version, printed, `Graph capturing finished in \d+ secs, took 0\.91 GiB`)
		if secret := strings.Contains(printed, "sk-secret"); secret != v.before(mustRelease("0.29.0")) {
			t.Errorf("vLLM %s shows the secret: %v", version, secret)
		}
		if v.before(mustRelease("0.9.0")) {
			match(t, version, printed, `args: Namespace\(.*gpu_memory_utilization=0\.95`)
		} else {
			match(t, version, printed, `non-default args: \{.*'gpu_memory_utilization': 0\.95.*\}`)
		}
	}
}

func TestPrefixes(t *testing.T) {
	for version, want := range map[string]string{
		"0.8.5":  `(?m)^\(VllmWorker rank=1 pid=\d+\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[gpu_model_runner\.py:\d+\] Starting to load model `,
		"0.9.1":  `(?m)^\(VllmWorker rank=1 pid=\d+\) INFO `,
		"0.10.1": `(?m)^\(EngineCore_0 pid=\d+\) \(VllmWorker TP1 pid=\d+\) INFO `,
		"0.11.0": `(?m)^\(Worker_TP1 pid=\d+\) INFO `,
		"0.22.1": `(?m)^\(EngineCore pid=\d+\) INFO .*Initializing`,
		"0.31.0": `(?m)^Loading safetensors checkpoint shards:`,
	} {
		t.Setenv("STANDIN_GPU", "H100 80GB")
		printed, _ := play(t, version, "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic -tp 2 --gpu-memory-utilization 0.95 --max-model-len 8192")
		match(t, version, printed, want)
	}
	printed, _ := play(t, "0.11.0", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic -tp 2 --gpu-memory-utilization 0.95 --max-model-len 8192")
	if n := strings.Count(printed, "Available KV cache memory"); n != 2 {
		t.Errorf("vLLM 0.11.0 has %d memory lines of two workers", n)
	}
	printed, _ = play(t, "0.13.0", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic -tp 2 --gpu-memory-utilization 0.95 --max-model-len 8192")
	if n := strings.Count(printed, "Available KV cache memory"); n != 1 {
		t.Errorf("vLLM 0.13.0 has %d memory lines of two workers", n)
	}
}

func TestFailures(t *testing.T) {
	for _, version := range played {
		v := mustRelease(version)
		printed, code := play(t, version, "Qwen/Qwen3-VL-30B-A3B-Instruct --gpu-memory-utilization 0.9")
		found := match(t, version, printed, `To serve at least one request with the models?'s max seq len \((\d+)\), \((-?[\d.]+) Gi?B KV cache is needed, which is larger than the available KV cache memory \((-?[\d.]+) Gi?B\)\.\s?Based on the available memory, the estimated maximum model length is (\d+)`)
		if code != 1 || found[1] != "262144" || !strings.HasPrefix(found[2], "24.0") || found[3] != "8.04" || found[4] != "87840" {
			t.Errorf("vLLM %s: exit code %d, %v", version, code, found[1:])
		}
		match(t, version, printed, `RuntimeError: Engine core initialization failed\. See root cause above\.`)
		if procs := strings.Contains(printed, "Failed core proc(s): {}"); procs == v.before(mustRelease("0.9.0")) {
			t.Errorf("vLLM %s names the failed processes: %v", version, procs)
		}

		printed, _ = play(t, version, "openai/gpt-oss-120b --gpu-memory-utilization 0.9")
		match(t, version, printed, "ValueError: No available memory for the cache blocks\\. Try increasing `gpu_memory_utilization` when initializing the engine")
		if !v.before(mustRelease("0.9.1")) {
			match(t, version, printed, `Available KV cache memory: -2\.14 GiB`)
		}

		printed, _ = play(t, version, "Qwen/Qwen2.5-32B-Instruct-AWQ -tp 2 --max-model-len 15000 --gpu-memory-utilization 0.78 --max-num-seqs 1024")
		match(t, version, printed, `torch\.OutOfMemoryError: CUDA out of memory\. Tried to allocate 1\.74 GiB\. GPU 1 has a total capacity of 23\.57 GiB of which 605\.88 MiB is free\..*(PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF)=expandable_segments:True`)
		const sampler = `CUDA out of memory occurred when warming up sampler with 1024 dummy requests`
		if runsSecond(v, "", true) {
			absent(t, version, printed, sampler)
		} else {
			match(t, version, printed, sampler)
		}

		printed, _ = play(t, version, "deepseek-ai/DeepSeek-R1")
		const hint = `Failed to load model - not enough GPU memory`
		if v.before(mustRelease("0.13.0")) || runsSecond(v, "", true) {
			absent(t, version, printed, hint)
		} else {
			match(t, version, printed, hint)
		}

		if !v.before(mustRelease("0.9.1")) {
			printed, _ = play(t, version, "meta-llama/Llama-3.1-8B --gpu-memory-utilization 0.9")
			match(t, version, printed, `ValueError: Free memory on device (cuda:0 )?\(59\.32/79\.15 GiB\) on startup is less than desired GPU memory utilization \(0\.9, 71\.24 GiB\)\.`)
		}
	}
}

func TestWhatIsNotRecordedIsNotPrinted(t *testing.T) {
	t.Setenv("STANDIN_GPU", "H100 80GB")
	const llama = "meta-llama/Llama-3.1-8B-Instruct --gpu-memory-utilization 0.95 "
	printed, _ := play(t, "0.11.0", llama+"--max-model-len 4096")
	absent(t, "0.11.0", printed, `Maximum concurrency`)
	match(t, "0.11.0", printed, `Available KV cache memory: 58\.11`)
	printed, _ = play(t, "0.28.0", llama+"--max-model-len 4096")
	absent(t, "0.28.0", printed, `KV cache size`)
	printed, _ = play(t, "0.11.0", llama+"--max-model-len 8192 --max-num-seqs 64")
	absent(t, "0.11.0", printed, `Available KV cache memory|KV cache size`)
	printed, _ = play(t, "0.11.0", "Qwen/Qwen3-32B --gpu-memory-utilization 0.9")
	absent(t, "0.11.0", printed, `To serve at least`)
	t.Setenv("STANDIN_LAW", "off")
	printed, code := play(t, "0.11.0", "nobody/knows")
	absent(t, "0.11.0", printed, `GiB`)
	if code != -1 {
		t.Errorf("without the law: exit code %d", code)
	}
}

func TestOldReleasesAreRefused(t *testing.T) {
	t.Setenv("STANDIN_VLLM_VERSION", "0.7.3")
	f, _ := parseFlags([]string{"M"})
	if _, err := newEngine(f, &bytes.Buffer{}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "oldest release") {
		t.Error(err)
	}
}

func TestRangesAreInOrder(t *testing.T) {
	check := func(name string, r ranges[string]) {
		for i := 1; i < len(r); i++ {
			if !mustRelease(r[i-1].release).before(mustRelease(r[i].release)) {
				t.Errorf("%s: %s does not come after %s", name, r[i].release, r[i-1].release)
			}
		}
	}
	for name, m := range messages {
		check(name, m.text)
		check(name, m.place)
	}
	for name, r := range failureTexts {
		check(name, r)
	}
}

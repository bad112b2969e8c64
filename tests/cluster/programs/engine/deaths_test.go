// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The children of spawn are this program: under test, the test's.
func TestMain(m *testing.M) {
	if task := os.Getenv("STANDIN_CHILD"); task != "" {
		if err := runChild(task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestFatesOf(t *testing.T) {
	for _, test := range []struct {
		deaths, pod, own string
		attempt          int
		want             []fate
	}{
		{"", "", "", 1, []fate{{kind: "none"}}},
		{"host_oom,none", "", "", 1, []fate{{kind: "host_oom", phase: phaseLoad}}},
		{"host_oom,none", "", "", 2, []fate{{kind: "none"}}},
		{"host_oom,none", "", "", 9, []fate{{kind: "none"}}},
		{"host_oom@serving", "", "", 1, []fate{{kind: "host_oom", phase: phaseServing}}},
		{"host_oom:160", "", "", 1, []fate{{kind: "host_oom", argument: 160, phase: phaseLoad}}},
		{"slow:2.5@load", "", "", 1, []fate{{kind: "slow", argument: 2.5, phase: phaseLoad}}},
		{"shm_fill:64", "", "", 1, []fate{{kind: "shm_fill", argument: 64, phase: phaseLoad}}},
		{"none", "llama-1", "exit:3", 1, []fate{{kind: "exit", argument: 3, phase: phaseLoad}}},
		{"none", "llama-0", "", 1, []fate{{kind: "none"}}},
		{"host_oom:160+cuda_oom@warmup?max_num_seqs>256&$A!=b:c@d,none", "", "", 1, []fate{
			{kind: "host_oom", argument: 160, phase: phaseLoad},
			{kind: "cuda_oom", phase: phaseWarmup, conditions: "max_num_seqs>256&$A!=b:c@d"},
		}},
	} {
		env := map[string]string{"STANDIN_DEATHS": test.deaths, "POD_NAME": test.pod, "STANDIN_DEATHS_1": test.own}
		got, err := fatesOf(func(name string) string { return env[name] }, test.attempt)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s, attempt %d: %v (%v), wanted %v", test.deaths, test.attempt, got, err, test.want)
		}
	}
	for _, wrong := range []string{
		"old_age", "hang@noon", "exit", "exit:x", "exit:-1", "none:1", "host_oom:0", "cuda_oom:5", "segv?", "segv?max_num_seqs",
		"segv?max_num_seqs>many", "segv?max_nun_seqs>1", "segv?max_num_seqs>1&", "segv?max_num_seqs>1@load",
	} {
		if got, err := parseFate(wrong); err == nil {
			t.Errorf("%q was read as %v", wrong, got)
		}
	}
}

func TestADeathComesOnlyUnderItsConditions(t *testing.T) {
	const llama = "meta-llama/Llama-3.1-8B-Instruct "
	for _, test := range []struct {
		conditions, args string
		comes            bool
	}{
		{"gpu_memory_utilization>0.9", llama + "--gpu-memory-utilization 0.95", true},
		{"gpu_memory_utilization>0.9", llama + "--gpu-memory-utilization 0.9", false},
		// vLLM's defaults: 0.92 from 0.20 on, 1024 sequences on this card, the model's own length.
		{"gpu_memory_utilization>0.91", llama, true},
		{"max_num_seqs>=1024", llama, true},
		{"max_num_seqs>=1024", llama + "--max_num_seqs=256", false},
		{"max_model_len>128k", llama, true},
		{"max_model_len>128K", llama, false},
		{"max_model_len>128k", llama + "--max-model-len 32k", false},
		{"max_num_batched_tokens>2048&enforce_eager!=True", llama, true},
		{"max_num_batched_tokens>2048&enforce_eager!=True", llama + "--enforce-eager", false},
		{"max_num_batched_tokens>2048&enforce_eager!=True", llama + "--max-num-batched-tokens 2048", false},
		{"kv_cache_memory_bytes>1000000", llama, false},
		{"kv_cache_memory_bytes>1000000", llama + "--kv-cache-memory-bytes 2M", true},
		{"kv_cache_memory_bytes=unset", llama, true},
		{"tensor_parallel_size<2", llama, true},
		{"tensor_parallel_size<2", llama + "-tp 2", false},
		{"$PYTORCH_CUDA_ALLOC_CONF!=expandable_segments:True", llama, false},
		{"$PYTORCH_ALLOC_CONF=unset", llama, true},
	} {
		f, err := parseFlags(strings.Fields(test.args))
		if err != nil {
			t.Fatal(err)
		}
		env := map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
		q := f.question(recorded(t), mustRelease("0.22.1"), "H100 80GB")
		got, err := those([]fate{{kind: "cuda_oom", conditions: test.conditions}}, q.setting(f, func(name string) string { return env[name] }))
		if err != nil || (len(got) == 1) != test.comes {
			t.Errorf("%s with %s: %v (%v)", test.conditions, test.args, got, err)
		}
	}
}

func TestANeedThatIsMetIsNoDeath(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("STANDIN_SHM", folder)
	for _, test := range []struct {
		task string
		need int
		want death
	}{{"shm", 8, 0}, {"eat", 8, 0}} {
		_, wait, err := spawn(test.task, "VLLM::Worker_TP0", test.need)
		if err != nil {
			t.Fatal(err)
		}
		if got := wait(); got != test.want {
			t.Errorf("%s of %d MiB ended with %s, wanted %s", test.task, test.need, got, test.want)
		}
	}
	engineFor(t, "0.11.0", io.Discard).reserveShmSegments(40)
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 0 {
		t.Errorf("left in shared memory: %v (%v)", left, err)
	}
	before := residentBytes()
	held, err := eat(32, 64)
	if err != nil || residentBytes()-before < 30*mib {
		t.Errorf("32 MiB: %d more (%v)", residentBytes()-before, err)
	}
	runtime.KeepAlive(held)
	if _, err := eat(128, 64); err == nil {
		t.Error("a need above the ceiling was held")
	}
}

func TestWorkTakesCPUTime(t *testing.T) {
	began := threadTimes(t)
	work(100 * time.Millisecond)
	if took := threadTimes(t) - began; took < 100*time.Millisecond {
		t.Errorf("%s of CPU time", took)
	}
}

// threadTimes is the CPU time of all threads.
func threadTimes(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func TestADeathInServingWaitsForItsRequests(t *testing.T) {
	t.Setenv("STANDIN_SERVING_REQUESTS", "2")
	t.Setenv("STANDIN_SERVING_SECONDS", "0")
	e := engineFor(t, "0.11.0", io.Discard)
	done := make(chan bool)
	go func() { e.serveForAWhile(); close(done) }()
	e.server.finished.Store(1)
	select {
	case <-done:
		t.Error("it died after one request")
	case <-time.After(150 * time.Millisecond):
	}
	e.server.finished.Store(2)
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("it lived on after two requests")
	}
}

func TestAttemptsAreCounted(t *testing.T) {
	folder := t.TempDir()
	for want := 1; want <= 3; want++ {
		if got, err := attempt(folder); err != nil || got != want {
			t.Errorf("%d (%v), wanted %d", got, err, want)
		}
	}
	if got, err := attempt(""); err != nil || got != 1 {
		t.Errorf("without a folder: %d (%v)", got, err)
	}
	if err := os.WriteFile(filepath.Join(folder, "attempts"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := attempt(folder); err == nil {
		t.Error("a broken count was read")
	}
}

func TestChildrenDieForReal(t *testing.T) {
	for _, test := range []struct {
		task string
		want death
	}{{"segv", -11}, {"eat", 2}} {
		t.Setenv("STANDIN_CEILING_MIB", "8") // no limit stops this one: it gives up
		_, wait, err := spawn(test.task, "VLLM::EngineCore", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := wait(); got != test.want {
			t.Errorf("%s ended with %s, wanted %s", test.task, got, test.want)
		}
	}
}

func TestHoldTouchesItsPages(t *testing.T) {
	before := residentBytes()
	memory, err := hold(32 * mib)
	if err != nil {
		t.Fatal(err)
	}
	if grown := residentBytes() - before; grown < 30*mib {
		t.Errorf("%d bytes more after 32 MiB", grown)
	}
	if memory[0] != 1 {
		t.Error("untouched")
	}
}

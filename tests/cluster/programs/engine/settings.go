// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are what the stand-in reads from its environment.
type settings struct {
	version      string        // STANDIN_VLLM_VERSION: which vLLM it plays
	gpu          string        // STANDIN_GPU: which card the table is asked for
	law          bool          // STANDIN_LAW=off: any model starts, without figures
	hostMiB      int           // STANDIN_HOST_MIB: real memory while loading
	step         time.Duration // STANDIN_STEP: seconds of a phase
	busyThreads  int           // STANDIN_BUSY_THREADS
	echo         string        // STANDIN_ECHO: more log lines
	termCode     string        // STANDIN_TERM_CODE: exit code on SIGTERM
	ceilingMiB   int           // STANDIN_CEILING_MIB: where an allocation gives up that no limit stops
	servingDelay time.Duration // STANDIN_SERVING_SECONDS: how long it serves before a death in serving
	servingCount int           // STANDIN_SERVING_REQUESTS: how many requests it answers before that, instead
	shmFolder    string        // STANDIN_SHM: where /dev/shm is
	state        string        // STANDIN_STATE: folder that outlives the container
}

func readSettings() settings {
	return settings{
		version:      orElse(os.Getenv("STANDIN_VLLM_VERSION"), "0.11.0"),
		gpu:          os.Getenv("STANDIN_GPU"),
		law:          os.Getenv("STANDIN_LAW") != "off",
		hostMiB:      number("STANDIN_HOST_MIB", 8),
		step:         seconds("STANDIN_STEP", 0.2),
		busyThreads:  number("STANDIN_BUSY_THREADS", 0),
		echo:         os.Getenv("STANDIN_ECHO"),
		termCode:     os.Getenv("STANDIN_TERM_CODE"),
		ceilingMiB:   number("STANDIN_CEILING_MIB", 4096),
		servingDelay: seconds("STANDIN_SERVING_SECONDS", 2),
		servingCount: number("STANDIN_SERVING_REQUESTS", 0),
		shmFolder:    orElse(os.Getenv("STANDIN_SHM"), "/dev/shm"),
		state:        os.Getenv("STANDIN_STATE"),
	}
}

func number(name string, fallback int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return fallback
}

func seconds(name string, fallback float64) time.Duration {
	n, err := strconv.ParseFloat(os.Getenv(name), 64)
	if err != nil {
		n = fallback
	}
	return time.Duration(n * float64(time.Second))
}

// phase is a part of a start; a death comes in one.
type phase string

const (
	phaseInit    phase = "init"
	phaseLoad    phase = "load"
	phaseProfile phase = "profile"
	phaseKV      phase = "kv_init"
	phaseGraphs  phase = "graph_capture"
	phaseWarmup  phase = "warmup"
	phaseServing phase = "serving"
)

var phases = []phase{phaseInit, phaseLoad, phaseProfile, phaseKV, phaseGraphs, phaseWarmup, phaseServing}

// naturalPhase is where each death comes unless "@phase" says otherwise.
var naturalPhase = map[string]phase{
	"none": "", "sigterm": "",
	"host_oom": phaseLoad, "host_oom_child": phaseLoad, "host_oom_child_exit0": phaseServing, "host_oom_child_lives": phaseServing,
	"cuda_oom": phaseLoad, "cuda_oom_exit0": phaseServing, "fragmented": phaseLoad, "mig": phaseKV, "neighbour": phaseLoad,
	"nccl_oom": phaseInit, "nccl_timeout": phaseInit,
	"shm": phaseInit, "shm_nccl": phaseInit, "shm_fill": phaseLoad,
	"exit": phaseLoad, "segv": phaseLoad, "hang": phaseLoad, "slow": phaseLoad, "cpu": phaseLoad,
}

// Which deaths take an argument. Those that need not have one do without limit what they do with one up to a need.
var (
	needsArgument = []string{"exit", "slow", "cpu", "shm_fill"}
	takesNeed     = []string{"host_oom", "host_oom_child", "host_oom_child_exit0", "host_oom_child_lives", "shm", "shm_nccl"}
)

// fate is one death of an item of STANDIN_DEATHS: kind[:argument][@phase][?conditions].
type fate struct {
	kind       string
	argument   float64 // 0: none
	phase      phase
	conditions string // joined by "&", all of which must hold
}

func parseFate(item string) (fate, error) {
	body, conditions, conditional := strings.Cut(strings.TrimSpace(item), "?")
	body, at, hasPhase := strings.Cut(body, "@")
	kind, argument, hasArgument := strings.Cut(body, ":")
	natural, known := naturalPhase[kind]
	if !known {
		return fate{}, fmt.Errorf("unknown death %q", item)
	}
	f := fate{kind: kind, phase: natural, conditions: conditions}
	if hasPhase {
		if f.phase = phase(at); !slices.Contains(phases, f.phase) {
			return fate{}, fmt.Errorf("unknown phase in %q", item)
		}
	}
	if conditional {
		if _, err := parseConditions(conditions); err != nil {
			return fate{}, fmt.Errorf("%q: %w", item, err)
		}
	}
	needed, optional := slices.Contains(needsArgument, kind), slices.Contains(takesNeed, kind)
	if hasArgument != needed && !optional {
		return fate{}, fmt.Errorf("%q: an argument belongs to %s, may be given to %s, and to no other death",
			item, strings.Join(needsArgument, ", "), strings.Join(takesNeed, ", "))
	}
	if hasArgument {
		var err error
		if f.argument, err = strconv.ParseFloat(argument, 64); err != nil {
			return fate{}, fmt.Errorf("%q: %w", item, err)
		}
		if f.argument < 0 || optional && f.argument < 1 {
			return fate{}, fmt.Errorf("%q: the argument is too small", item)
		}
	}
	return f, nil
}

// fatesOf picks the item for an attempt: deaths joined by "+", each in its phase. STANDIN_DEATHS_<n> is for the pod
// whose name ends in -<n>.
func fatesOf(getenv func(string) string, attempt int) ([]fate, error) {
	deaths := getenv("STANDIN_DEATHS")
	if pod := getenv("POD_NAME"); strings.Contains(pod, "-") {
		ordinal := pod[strings.LastIndex(pod, "-")+1:]
		if own := getenv("STANDIN_DEATHS_" + ordinal); own != "" {
			deaths = own
		}
	}
	if deaths == "" {
		deaths = "none"
	}
	var attempts [][]fate
	for item := range strings.SplitSeq(deaths, ",") {
		var fates []fate
		for one := range strings.SplitSeq(item, "+") {
			f, err := parseFate(one)
			if err != nil {
				return nil, err
			}
			fates = append(fates, f)
		}
		attempts = append(attempts, fates)
	}
	return attempts[min(attempt, len(attempts))-1], nil
}

// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// The engine stand-in plays vLLM in the pods of a test cluster: it starts like vLLM, holds real memory, dies real
// deaths, or serves. It computes nothing, and it says so in its first line. See README.md for its environment.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const help = `vLLM stand-in of the vllm_runbook.oom test cluster. This is no vLLM: it replays public records.

  vllm serve MODEL [flags]
  python3 -m vllm.entrypoints.openai.api_server --model MODEL [flags]

It takes vLLM's flags. What it plays is set in the environment: STANDIN_VLLM_VERSION, STANDIN_GPU, STANDIN_LAW,
STANDIN_HOST_MIB, STANDIN_STEP, STANDIN_DEATHS, STANDIN_DEATHS_<n>, STANDIN_STATE, STANDIN_BUSY_THREADS, STANDIN_ECHO,
STANDIN_TERM_CODE, STANDIN_SERVING_SECONDS, STANDIN_SERVING_REQUESTS, STANDIN_CEILING_MIB, STANDIN_SHM. README.md beside
its source explains them.
`

func main() {
	if task := os.Getenv("STANDIN_CHILD"); task != "" {
		if err := runChild(task); err != nil {
			fmt.Fprintln(os.Stderr, "standin:", err)
			os.Exit(2)
		}
		return
	}
	os.Exit(run(filepath.Base(os.Args[0]), os.Args[1:], os.Stdout, os.Stderr))
}

// run returns an exit code for what is no start; a start ends by itself.
func run(name string, args []string, stdout, stderr io.Writer) int {
	program, args, ok := command(name, args)
	switch {
	case slices.Contains(args, "--help") || slices.Contains(args, "-h"):
		_, _ = fmt.Fprint(stdout, help)
		return 0
	case !ok && program == "vllm" && slices.Contains(args, "--version"):
		_, _ = fmt.Fprintln(stdout, readSettings().version)
		return 0
	case !ok:
		_, _ = fmt.Fprint(stderr, help)
		return 2
	}
	_, _ = fmt.Fprintf(stderr, "standin: this is the vLLM stand-in of a test cluster; it plays vLLM %s\n", readSettings().version)
	parsed, err := parseFlags(args)
	if err == nil && !parsed.has("model") {
		parsed.set("model", "Qwen/Qwen3-0.6B") // vLLM's own default
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "usage: %s [model_tag] [options]\n%[1]s: error: %[2]v\n", program, err)
		return 2
	}
	e, err := newEngine(parsed, stdout, stderr)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "standin: %v\n", err)
		return 2
	}
	reap()
	e.stopOnSignal()
	e.start()
	return 0
}

// command finds out how the program was called. Under the name python3 only vLLM's server module exists.
func command(name string, args []string) (program string, rest []string, ok bool) {
	if strings.HasPrefix(name, "python") {
		if len(args) >= 2 && args[0] == "-m" && args[1] == "vllm.entrypoints.openai.api_server" {
			return "api_server.py", args[2:], true
		}
		return name, args, false
	}
	if len(args) > 0 && args[0] == "serve" {
		return "vllm serve", args[1:], true
	}
	return "vllm", args, false
}

// newEngine decides everything that can be decided before the first line.
func newEngine(parsed *flags, stdout, stderr io.Writer) (*engine, error) {
	e := &engine{settings: readSettings(), flags: parsed, started: time.Now(), quit: os.Exit}
	var err error
	if e.release, err = parseRelease(e.version); err != nil {
		return nil, err
	}
	if e.release.before(mustRelease(oldest)) {
		return nil, fmt.Errorf("no words recorded for vLLM %s; the oldest release is %s", e.version, oldest)
	}
	table, err := loadTable(startupsJSON)
	if err != nil {
		return nil, err
	}
	e.info = table.info(parsed.get("model"))
	e.asked = parsed.question(table, e.release, e.gpu)
	if e.law {
		e.answer, err = table.ask(e.asked)
		if _, missing := err.(notRecorded); missing {
			return nil, fmt.Errorf("not recorded: %w", err)
		} else if err != nil {
			return nil, err
		}
		if e.answer.outcome == freeBelowUtil && failureTexts["free"].at(e.release) == "" {
			return nil, fmt.Errorf("not recorded: row %s is about a check that vLLM %s does not have", e.answer.row.ID, e.version)
		}
	} else {
		e.answer.outcome = serves
	}
	quantized := e.asked.quantization != "" || e.answer.row != nil && e.answer.row.Quantization != nil
	e.second = runsSecond(e.release, e.info.Architecture, quantized)
	n, err := attempt(e.state)
	if err != nil {
		return nil, err
	}
	fates, err := fatesOf(os.Getenv, n)
	if err != nil {
		return nil, err
	}
	if e.fates, err = those(fates, e.asked.setting(parsed, os.Getenv)); err != nil {
		return nil, err
	}
	pid := os.Getpid()
	e.log = &logbook{
		release: e.release, single: e.asked.tp == 1, api: pid, engine: pid + 117, workers: map[int]int{},
		stderr: stderr, stdout: stdout, now: time.Now,
	}
	return e, nil
}

// stopOnSignal: PID 1 gets no signal that it has no handler for.
func (e *engine) stopOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		e.exit(e.stop())
	}()
}

// stop prints vLLM's end on SIGTERM and returns the exit code.
func (e *engine) stop() int {
	code := 128 + int(syscall.SIGTERM)
	if e.serving.Load() {
		code = 0
		e.log.say(core, "shutdown signal", nil)
		e.log.say(core, "shutdown mode", nil)
		e.shutDown()
	} else {
		e.log.raw(api, traceback([]frame{
			{"/usr/local/bin/vllm", "<module>", "sys.exit(main())"},
			{"vllm/entrypoints/cli/serve.py", "cmd", "uvloop.run(run_server(args))"},
		}, "KeyboardInterrupt: terminated"))
	}
	if own, err := strconv.Atoi(e.termCode); err == nil {
		code = own
	}
	return code
}

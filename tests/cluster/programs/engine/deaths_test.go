// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// The children of spawn are this program: under test, the test's.
func TestMain(m *testing.M) {
	if task := os.Getenv("STANDIN_CHILD"); task != "" {
		fmt.Fprintln(os.Stderr, runChild(task))
		os.Exit(2)
	}
	os.Exit(m.Run())
}

func TestFateOf(t *testing.T) {
	for _, test := range []struct {
		deaths, pod, own string
		attempt          int
		want             fate
	}{
		{"", "", "", 1, fate{kind: "none"}},
		{"host_oom,none", "", "", 1, fate{kind: "host_oom", phase: phaseLoad}},
		{"host_oom,none", "", "", 2, fate{kind: "none"}},
		{"host_oom,none", "", "", 9, fate{kind: "none"}},
		{"host_oom@serving", "", "", 1, fate{kind: "host_oom", phase: phaseServing}},
		{"slow:2.5@load", "", "", 1, fate{kind: "slow", argument: 2.5, phase: phaseLoad}},
		{"shm_fill:64", "", "", 1, fate{kind: "shm_fill", argument: 64, phase: phaseLoad}},
		{"none", "llama-1", "exit:3", 1, fate{kind: "exit", argument: 3, phase: phaseLoad}},
		{"none", "llama-0", "", 1, fate{kind: "none"}},
	} {
		env := map[string]string{"STANDIN_DEATHS": test.deaths, "POD_NAME": test.pod, "STANDIN_DEATHS_1": test.own}
		got, err := fateOf(func(name string) string { return env[name] }, test.attempt)
		if err != nil || got != test.want {
			t.Errorf("%s, attempt %d: %v (%v), wanted %v", test.deaths, test.attempt, got, err, test.want)
		}
	}
	for _, wrong := range []string{"old_age", "hang@noon", "exit", "exit:x", "none:1"} {
		if got, err := parseFate(wrong); err == nil {
			t.Errorf("%q was read as %v", wrong, got)
		}
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
		_, wait, err := spawn(test.task, "VLLM::EngineCore")
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

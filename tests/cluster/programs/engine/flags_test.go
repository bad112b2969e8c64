// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"slices"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		args, name, want string
	}{
		{"M --max-model-len 4096", "max_model_len", "4096"},
		{"M --max_model_len=4096", "max_model_len", "4096"},
		{"M --max-model-len 4096 --max_model_len=32k", "max_model_len", "32k"},
		{"--model M -tp 4", "tensor_parallel_size", "4"},
		{"-tp=2 M", "tensor_parallel_size", "2"},
		{"M --enforce-eager", "enforce_eager", "True"},
		{"M --enforce-eager --no-enforce-eager", "enforce_eager", "False"},
		{"--enforce-eager M", "model", "M"},
		{"--enable-something-new M", "model", "M"},
		{"M --something-new --other=1", "something_new", "True"},
		{"M --something-new 5", "something_new", "5"},
		{"M --seed -1", "seed", "-1"},
		{"M --max-model-len auto", "max_model_len", "auto"},
		{"M --served-model-name a b --port 1", "served_model_name", "a b"},
	} {
		f, err := parseFlags(strings.Fields(test.args))
		if err != nil {
			t.Errorf("%s: %v", test.args, err)
		} else if got := strings.Join(f.values[test.name], " "); got != test.want {
			t.Errorf("%s: %s is %q, wanted %q", test.args, test.name, got, test.want)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for args, want := range map[string]string{
		"M --max-num-seqs many":              "argument --max-num-seqs: invalid int value: 'many'",
		"M --max-num-seqs 1k":                "argument --max-num-seqs: invalid int value: '1k'",
		"M --gpu-memory-utilization=ninety":  "argument --gpu-memory-utilization: invalid float value: 'ninety'",
		"M --kv-cache-memory-bytes 2Gi":      "argument --kv-cache-memory-bytes: invalid human_readable_int value: '2Gi'",
		"M --max-model-len":                  "argument --max-model-len: expected one argument",
		"M --max-model-len --enforce-eager":  "argument --max-model-len: expected one argument",
		"M N":                                "unrecognized arguments: N",
		"M --served-model-name --port 8000 ": "argument --served-model-name: expected at least one argument",
	} {
		if _, err := parseFlags(strings.Fields(args)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, wanted %s", args, err, want)
		}
	}
}

func TestHumanNumbers(t *testing.T) {
	for value, want := range map[string]int{"32768": 32768, "32k": 32000, "32K": 32768, "1.5k": 1500, "2G": 1 << 31, "2g": 2e9} {
		if got, err := humanInt(value, true); err != nil || got != want {
			t.Errorf("%s is %d (%v), wanted %d", value, got, err, want)
		}
	}
	for _, value := range []string{"2Gi", "1.5K", "k", ""} {
		if got, err := humanInt(value, true); err == nil {
			t.Errorf("%q was read as %d", value, got)
		}
	}
}

func TestCommand(t *testing.T) {
	for _, test := range []struct {
		name    string
		args    []string
		program string
		rest    []string
		ok      bool
	}{
		{"vllm", []string{"serve", "M"}, "vllm serve", []string{"M"}, true},
		{"python3", []string{"-m", "vllm.entrypoints.openai.api_server", "--model", "M"}, "api_server.py", []string{"--model", "M"}, true},
		{"python3", []string{"-c", "1"}, "python3", []string{"-c", "1"}, false},
		{"vllm", []string{"bench"}, "vllm", []string{"bench"}, false},
	} {
		program, rest, ok := command(test.name, test.args)
		if program != test.program || ok != test.ok || !slices.Equal(rest, test.rest) {
			t.Errorf("%s %v: %s %v %v", test.name, test.args, program, rest, ok)
		}
	}
}

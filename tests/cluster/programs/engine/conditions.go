// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A condition compares a setting of this start with a value, so that a death is cured by the right change and by no
// other: cuda_oom@warmup?gpu_memory_utilization>0.9 comes until the utilization is 0.9 or less.
type condition struct {
	name     string // a flag's canonical name, or $NAME for a variable of the environment
	operator string
	value    string
}

// unset is the value of a flag or variable that nobody gave and whose default isn't known here.
const unset = "unset"

var conditionShape = regexp.MustCompile(`^(\$?\w+)(<=|>=|!=|=|<|>)(.+)$`)

func parseConditions(text string) ([]condition, error) {
	var found []condition
	for part := range strings.SplitSeq(text, "&") {
		match := conditionShape.FindStringSubmatch(part)
		if match == nil {
			return nil, fmt.Errorf("not a condition: %q; one is such as max_num_seqs>256, enforce_eager!=True or $NAME=value", part)
		}
		c := condition{match[1], match[2], match[3]}
		if _, known := flagKinds[c.name]; !known && !strings.HasPrefix(c.name, "$") && !slices.Contains(shaping, c.name) {
			return nil, fmt.Errorf("no known flag: %q", c.name)
		}
		if _, isNumber := numeric(c.name, c.value); !isNumber && strings.ContainsAny(c.operator, "<>") {
			return nil, fmt.Errorf("%q: %s compares numbers", part, c.operator)
		}
		found = append(found, c)
	}
	return found, nil
}

func numeric(name, value string) (float64, bool) {
	if n, err := humanInt(value, flagKinds[name] == humanFlag); err == nil {
		return float64(n), true
	}
	n, err := strconv.ParseFloat(value, 64)
	return n, err == nil
}

// holds compares as numbers where both are some, as text otherwise. What is unset is neither more nor less than anything.
func (c condition) holds(setting func(name string) string) bool {
	have := setting(c.name)
	a, aIsNumber := numeric(c.name, have)
	b, bIsNumber := numeric(c.name, c.value)
	numbers := aIsNumber && bIsNumber
	equal := have == c.value || numbers && a == b
	switch c.operator {
	case "=":
		return equal
	case "!=":
		return !equal
	case "<":
		return numbers && a < b
	case "<=":
		return numbers && a <= b
	case ">":
		return numbers && a > b
	default:
		return numbers && a >= b
	}
}

// setting is a value as this start has it: given, or the default of vLLM that the table of start-ups knows.
func (q question) setting(f *flags, getenv func(string) string) func(string) string {
	return func(name string) string {
		if variable, ok := strings.CutPrefix(name, "$"); ok {
			return orElse(getenv(variable), unset)
		}
		if f.has(name) {
			return strings.Join(f.values[name], " ")
		}
		number := func(a axis[int]) string {
			if !a.known {
				return unset
			}
			return strconv.Itoa(a.value)
		}
		switch name {
		case "gpu_memory_utilization":
			return strconv.FormatFloat(q.utilization.value, 'f', -1, 64)
		case "max_model_len":
			return number(q.maxModelLen)
		case "max_num_seqs":
			return number(q.maxNumSeqs)
		case "max_num_batched_tokens":
			return number(q.batchedTokens)
		case "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size":
			return "1"
		case "kv_cache_dtype":
			return q.kvCacheDtype
		}
		if flagKinds[name] == boolFlag {
			return "False"
		}
		return unset
	}
}

// those are the deaths whose conditions hold.
func those(fates []fate, setting func(string) string) ([]fate, error) {
	var found []fate
	for _, f := range fates {
		if f.conditions != "" {
			conditions, err := parseConditions(f.conditions)
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(conditions, func(c condition) bool { return !c.holds(setting) }) {
				continue
			}
		}
		found = append(found, f)
	}
	return found, nil
}

// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// The law of GPU memory here is a table of recorded public start-ups, never a formula.
//
// A row speaks for a question about the same model, GPU, tensor parallel size, quantization and KV cache dtype.
// What served serves with less, what failed fails with more; in between nothing is known, and the engine says so.
// A length that vLLM itself called possible when it refused a longer one ("the estimated maximum model length is N")
// is recorded too: that start serves with N and less.
// The version that the engine plays changes its wording only.

//go:embed startups.json
var startupsJSON []byte

type outcome string

const (
	serves        outcome = "serves"
	weightsOOM    outcome = "gpu_weights_oom"
	freeBelowUtil outcome = "gpu_free_below_util"
	profileOOM    outcome = "profile_run_oom"
	kvNoBlocks    outcome = "kv_no_blocks"
	kvMaxLen      outcome = "kv_max_len"
	graphOOM      outcome = "graph_capture_oom"
	warmupOOM     outcome = "warmup_oom"
)

// direction says for which utilizations a failure stays one, relative to the recorded value.
type direction int

const (
	atAny direction = iota
	atOrBelow
	atOrAbove
)

// failures: weights and a foreign holder do not ask for lengths or batches, what comes later does.
var failures = map[outcome]struct {
	utilization direction
	needsAxes   bool
}{
	weightsOOM:    {atAny, false},
	freeBelowUtil: {atOrAbove, false},
	profileOOM:    {atAny, true},
	kvNoBlocks:    {atOrBelow, true},
	kvMaxLen:      {atOrBelow, true},
	graphOOM:      {atOrAbove, true},
	warmupOOM:     {atOrAbove, true},
}

type row struct {
	ID          string  `json:"id"`
	Source      string  `json:"source"`
	Version     string  `json:"version"`
	VersionNote *string `json:"version_note"`

	Model        string  `json:"model"`
	GPU          string  `json:"gpu"`
	TP           int     `json:"tp"`
	Quantization *string `json:"quantization"`
	KVCacheDtype string  `json:"kv_cache_dtype"`

	Utilization   *float64 `json:"gpu_memory_utilization"`
	MaxModelLen   *int     `json:"max_model_len"`
	MaxNumSeqs    *int     `json:"max_num_seqs"`
	BatchedTokens *int     `json:"max_num_batched_tokens"`
	EnforceEager  *bool    `json:"enforce_eager"`

	Outcome outcome `json:"outcome"`

	WeightsGiB      *float64 `json:"weights_gib"`
	LoadSeconds     *float64 `json:"load_seconds"`
	AvailableKVGiB  *float64 `json:"available_kv_gib"`
	KVTokens        *int     `json:"kv_tokens"`
	MaxConcurrency  *float64 `json:"max_concurrency"`
	GraphGiB        *float64 `json:"graph_gib"`
	NeededKVGiB     *float64 `json:"needed_kv_gib"`
	EstimatedMaxLen *int     `json:"estimated_max_len"`
	FreeGiB         *float64 `json:"free_gib"`
	TotalGiB        *float64 `json:"total_gib"`
	RequestedGiB    *float64 `json:"requested_gib"`
	SamplerRequests *int     `json:"sampler_requests"`
	TorchOOM        string   `json:"torch_oom"`
}

type modelInfo struct {
	Architecture string `json:"architecture"`
	MaxModelLen  *int   `json:"max_model_len"`
}

type table struct {
	Models map[string]modelInfo `json:"models"`
	GPUs   struct {
		Large []string `json:"large"`
		Small []string `json:"small"`
	} `json:"gpus"`
	Rows []row `json:"rows"`
}

func loadTable(data []byte) (*table, error) {
	var t table
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, err
	}
	return &t, nil
}

// axis is one asked value: what was given, or vLLM's default when nothing was. Unknown defaults stay unknown.
type axis[T any] struct {
	value T
	known bool
	given bool
}

// question is what a start asks of the table.
type question struct {
	model        string
	gpu          string
	tp           int
	quantization string // empty: what the checkpoint says
	kvCacheDtype string

	utilization   axis[float64]
	maxModelLen   axis[int]
	maxNumSeqs    axis[int]
	batchedTokens axis[int]
	enforceEager  axis[bool]

	foreign []string // flags that change GPU memory and that no row has
}

type answer struct {
	outcome outcome
	row     *row
	exact   bool // every axis is the row's own value or left at the default where the row has none
	sameLen bool // the length alone
}

type notRecorded struct{ text string }

func (e notRecorded) Error() string { return e.text }

func (t *table) info(model string) modelInfo {
	for name, info := range t.Models {
		if strings.EqualFold(name, model) {
			return info
		}
	}
	return modelInfo{}
}

func (t *table) rowsOf(model string) []*row {
	var found []*row
	for i := range t.Rows {
		if strings.EqualFold(t.Rows[i].Model, model) {
			found = append(found, &t.Rows[i])
		}
	}
	return found
}

// gpuOf is the only GPU that the model's rows have, or nothing.
func (t *table) gpuOf(model string, tp int) string {
	names := map[string]bool{}
	for _, r := range t.rowsOf(model) {
		if r.TP == tp {
			names[r.GPU] = true
		}
	}
	if len(names) != 1 {
		return ""
	}
	for name := range names {
		return name
	}
	return ""
}

// batchDefaults are vLLM's own defaults of max_num_seqs and max_num_batched_tokens in its API server (from 0.8.5).
func (t *table) batchDefaults(gpu string) (seqs, tokens int, known bool) {
	switch {
	case slices.Contains(t.GPUs.Large, gpu):
		return 1024, 8192, true
	case slices.Contains(t.GPUs.Small, gpu):
		return 256, 2048, true
	}
	return 0, 0, false
}

func (r *row) speaksFor(q question) bool {
	if !strings.EqualFold(r.Model, q.model) || r.GPU != q.gpu || r.TP != q.tp || r.KVCacheDtype != q.kvCacheDtype {
		return false
	}
	if q.quantization == "" {
		return true
	}
	return r.Quantization != nil && *r.Quantization == q.quantization
}

// compare orders an asked value against a recorded one. A row without the value speaks only for a question that
// leaves it at the default; a default that nobody knows (the model's own length) is larger than anything recorded.
func compare(recorded *int, asked axis[int]) (order int, comparable bool) {
	if recorded == nil {
		return 0, !asked.given
	}
	if !asked.known {
		return 1, true
	}
	switch {
	case asked.value < *recorded:
		return -1, true
	case asked.value > *recorded:
		return 1, true
	}
	return 0, true
}

func (r *row) axes(q question) (orders []int, comparable bool) {
	for _, pair := range []struct {
		recorded *int
		asked    axis[int]
	}{{r.MaxModelLen, q.maxModelLen}, {r.MaxNumSeqs, q.maxNumSeqs}, {r.BatchedTokens, q.batchedTokens}, {asInt(r.EnforceEager), eagerAsInt(q.enforceEager)}} {
		order, ok := compare(pair.recorded, pair.asked)
		if !ok {
			return nil, false
		}
		orders = append(orders, order)
	}
	return orders, true
}

// Eager mode needs less memory than graphs: eager counts as 0, graphs as 1.
func asInt(eager *bool) *int {
	if eager == nil {
		return nil
	}
	n := 1
	if *eager {
		n = 0
	}
	return &n
}

func eagerAsInt(eager axis[bool]) axis[int] {
	return axis[int]{value: *asInt(&eager.value), known: true, given: eager.given}
}

// coversExceptUtilization: the row served with at least what is asked.
func (r *row) coversExceptUtilization(q question) bool {
	orders, ok := r.axes(q)
	return ok && slices.Max(orders) <= 0
}

// failsFor: the row failed with at most what is asked.
func (r *row) failsFor(q question) bool {
	rule := failures[r.Outcome]
	switch {
	case rule.utilization == atAny:
	case r.Utilization == nil:
		if q.utilization.given {
			return false
		}
	case rule.utilization == atOrBelow && q.utilization.value > *r.Utilization:
		return false
	case rule.utilization == atOrAbove && q.utilization.value < *r.Utilization:
		return false
	}
	if !rule.needsAxes {
		return true
	}
	orders, ok := r.axes(q)
	return ok && slices.Min(orders) >= 0
}

// servesFor: a row at the asked utilization, or two that enclose it.
func servesFor(rows []*row, q question) *row {
	var below, above *row
	for _, r := range rows {
		if r.Outcome != serves || !r.coversExceptUtilization(q) {
			continue
		}
		if r.Utilization == nil {
			if !q.utilization.given {
				return r
			}
			continue
		}
		if *r.Utilization <= q.utilization.value && closer(r, below, q) {
			below = r
		}
		if *r.Utilization >= q.utilization.value && closer(r, above, q) {
			above = r
		}
	}
	switch {
	case below == nil || above == nil:
		return nil
	case *above.Utilization == q.utilization.value:
		return above
	}
	return below
}

// closer prefers the nearer utilization, then the row whose values are the asked ones.
func closer(candidate, best *row, q question) bool {
	if best == nil {
		return true
	}
	a, b := distance(candidate, q), distance(best, q)
	if a != b {
		return a < b
	}
	return candidate.sameAxes(q) && !best.sameAxes(q)
}

func distance(r *row, q question) float64 {
	d := *r.Utilization - q.utilization.value
	if d < 0 {
		return -d
	}
	return d
}

func (r *row) sameAxes(q question) bool {
	orders, ok := r.axes(q)
	return ok && slices.Max(orders) == 0 && slices.Min(orders) == 0
}

func (r *row) sameUtilization(q question) bool {
	if r.Utilization == nil {
		return !q.utilization.given
	}
	return *r.Utilization == q.utilization.value
}

// ask answers a question from the table, or returns notRecorded.
func (t *table) ask(q question) (answer, error) {
	if len(q.foreign) > 0 {
		return answer{}, notRecorded{fmt.Sprintf("%s with %s; no row has that", q.describe(), strings.Join(q.foreign, ", "))}
	}
	var rows []*row
	for _, r := range t.rowsOf(q.model) {
		if r.speaksFor(q) {
			rows = append(rows, r)
			if estimated := r.estimated(); estimated != nil {
				rows = append(rows, estimated)
			}
		}
	}
	served := servesFor(rows, q)
	var failed *row
	for _, r := range rows {
		if r.Outcome == serves || !r.failsFor(q) {
			continue
		}
		if failed == nil || (r.sameAxes(q) && r.sameUtilization(q)) {
			failed = r
		}
	}
	switch {
	case served != nil && failed != nil:
		return answer{}, fmt.Errorf("rows %s and %s contradict each other for %s", served.ID, failed.ID, q.describe())
	case served == nil && failed == nil:
		return answer{}, notRecorded{q.describe() + "; " + t.known(q.model)}
	}
	found := served
	if failed != nil {
		found = failed
	}
	order, _ := compare(found.MaxModelLen, q.maxModelLen)
	return answer{
		outcome: found.Outcome, row: found, sameLen: order == 0,
		exact: found.sameUtilization(q) && found.sameAxes(q),
	}, nil
}

// estimated is the start that vLLM called possible in a row's error, as a row; nil where it did not.
func (r *row) estimated() *row {
	if r.Outcome != kvMaxLen || r.EstimatedMaxLen == nil {
		return nil
	}
	shorter := *r
	shorter.Outcome, shorter.MaxModelLen = serves, r.EstimatedMaxLen
	shorter.NeededKVGiB, shorter.EstimatedMaxLen, shorter.MaxConcurrency = nil, nil, nil
	return &shorter
}

// withoutContradiction asks the table for each of its own rows, and for what vLLM called possible in them.
func (t *table) withoutContradiction() error {
	var all []*row
	for i := range t.Rows {
		all = append(all, &t.Rows[i])
		if estimated := t.Rows[i].estimated(); estimated != nil {
			all = append(all, estimated)
		}
	}
	for _, r := range all {
		got, err := t.ask(t.questionOf(r))
		if err != nil {
			return fmt.Errorf("row %s: %w", r.ID, err)
		}
		if (got.outcome == serves) != (r.Outcome == serves) {
			return fmt.Errorf("row %s: %s by row %s, recorded as %s", r.ID, got.outcome, got.row.ID, r.Outcome)
		}
	}
	return nil
}

// questionOf asks for exactly what a row has.
func (t *table) questionOf(r *row) question {
	q := question{model: r.Model, gpu: r.GPU, tp: r.TP, kvCacheDtype: r.KVCacheDtype}
	if r.Utilization != nil {
		q.utilization = axis[float64]{*r.Utilization, true, true}
	} else {
		q.utilization = axis[float64]{0.9, true, false}
	}
	set := func(recorded *int, fallback axis[int]) axis[int] {
		if recorded == nil {
			return fallback
		}
		return axis[int]{*recorded, true, true}
	}
	seqs, tokens, known := t.batchDefaults(r.GPU)
	q.maxNumSeqs = set(r.MaxNumSeqs, axis[int]{seqs, known, false})
	q.batchedTokens = set(r.BatchedTokens, axis[int]{tokens, known, false})
	length := axis[int]{}
	if own := t.info(r.Model).MaxModelLen; own != nil {
		length = axis[int]{*own, true, false}
	}
	q.maxModelLen = set(r.MaxModelLen, length)
	if r.EnforceEager != nil {
		q.enforceEager = axis[bool]{*r.EnforceEager, true, *r.EnforceEager}
	} else {
		q.enforceEager = axis[bool]{false, true, false}
	}
	return q
}

func (q question) describe() string {
	parts := []string{q.model, "on " + orElse(q.gpu, "no GPU named (STANDIN_GPU)"), fmt.Sprintf("tp=%d", q.tp)}
	if q.quantization != "" {
		parts = append(parts, "quantization="+q.quantization)
	}
	if q.kvCacheDtype != "auto" {
		parts = append(parts, "kv_cache_dtype="+q.kvCacheDtype)
	}
	parts = append(parts, fmt.Sprintf("gpu_memory_utilization=%v", q.utilization.value))
	for _, a := range []struct {
		name string
		axis axis[int]
	}{{"max_model_len", q.maxModelLen}, {"max_num_seqs", q.maxNumSeqs}, {"max_num_batched_tokens", q.batchedTokens}} {
		switch {
		case a.axis.known && a.axis.given:
			parts = append(parts, fmt.Sprintf("%s=%d", a.name, a.axis.value))
		case a.axis.known:
			parts = append(parts, fmt.Sprintf("%s=%d (default)", a.name, a.axis.value))
		default:
			parts = append(parts, a.name+"=default")
		}
	}
	if q.enforceEager.value {
		parts = append(parts, "enforce_eager")
	}
	return strings.Join(parts, " ")
}

func (t *table) known(model string) string {
	rows := t.rowsOf(model)
	if len(rows) == 0 {
		names := map[string]bool{}
		for _, r := range t.Rows {
			names[r.Model] = true
		}
		list := make([]string, 0, len(names))
		for name := range names {
			list = append(list, name)
		}
		sort.Strings(list)
		return "models with rows: " + strings.Join(list, ", ")
	}
	var list []string
	for _, r := range rows {
		list = append(list, r.describe())
	}
	return "rows: " + strings.Join(list, " | ")
}

func (r *row) describe() string {
	text := fmt.Sprintf("%s: %s tp=%d", r.ID, r.GPU, r.TP)
	if r.KVCacheDtype != "auto" {
		text += " kv_cache_dtype=" + r.KVCacheDtype
	}
	if r.Utilization != nil {
		text += fmt.Sprintf(" util=%v", *r.Utilization)
	}
	for _, a := range []struct {
		name  string
		value *int
	}{{"len", r.MaxModelLen}, {"seqs", r.MaxNumSeqs}, {"tokens", r.BatchedTokens}} {
		if a.value != nil {
			text += fmt.Sprintf(" %s=%d", a.name, *a.value)
		}
	}
	if r.EnforceEager != nil && *r.EnforceEager {
		text += " eager"
	}
	text += " -> " + string(r.Outcome)
	if r.EstimatedMaxLen != nil {
		text += fmt.Sprintf(", serves with len=%d", *r.EstimatedMaxLen)
	}
	return text
}

func orElse(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

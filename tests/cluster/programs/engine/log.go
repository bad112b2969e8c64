// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// speaker is one of vLLM's processes. Here all of them are this process, unless one of them has to die.
type speaker struct {
	role string // api, engine, worker
	rank int
}

var (
	api    = speaker{role: "api"}
	core   = speaker{role: "engine"}
	nobody = speaker{} // before a process has its name
)

func worker(rank int) speaker { return speaker{"worker", rank} }

// logbook writes lines as a vLLM release writes them.
type logbook struct {
	release release
	single  bool // one GPU: the worker is the engine core
	api     int  // process ids
	engine  int
	workers map[int]int

	mutex  sync.Mutex
	stderr io.Writer
	stdout io.Writer
	now    func() time.Time
}

func (l *logbook) pid(s speaker) int {
	switch {
	case s.role == "api":
		return l.api
	case s.role == "engine" || l.single:
		return l.engine
	}
	if pid, ok := l.workers[s.rank]; ok {
		return pid
	}
	return l.engine + 63 + s.rank
}

func (l *logbook) prefix(s speaker) string {
	values := fill{"pid": l.pid(s), "engine": l.engine, "rank": s.rank}
	switch {
	case s == nobody:
		return ""
	case s.role == "api":
		return values.filled(prefixes.api.at(l.release))
	case s.role == "engine" || l.single:
		return values.filled(prefixes.engine.at(l.release))
	}
	return values.filled(prefixes.worker.at(l.release))
}

func (l *logbook) write(w io.Writer, lines ...string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	_, _ = io.WriteString(w, strings.Join(lines, "\n")+"\n")
}

// say writes a message of the table, or nothing where the release has none.
func (l *logbook) say(s speaker, name string, values fill) {
	m, ok := messages[name]
	if !ok {
		panic("no such message: " + name)
	}
	if body := m.text.at(l.release); body != "" {
		l.record(s, name, values.filled(body))
	}
}

// record writes any text under a message's level and place. Each line of a record gets the prefix.
func (l *logbook) record(s speaker, name, body string) {
	m := messages[name]
	head := fmt.Sprintf("%s%s %s [%s] ", l.prefix(s), m.level, l.now().Format("01-02 15:04:05"), m.place.at(l.release))
	lines := strings.Split(body, "\n")
	for i := range lines {
		lines[i] = head + lines[i]
	}
	l.write(l.stderr, lines...)
}

// raw writes what does not come from the logger: progress bars, tracebacks of dying processes, C++ warnings.
func (l *logbook) raw(s speaker, body string) {
	lines := strings.Split(body, "\n")
	if rawIsPrefixed.at(l.release) {
		for i := range lines {
			lines[i] = l.prefix(s) + lines[i]
		}
	}
	l.write(l.stderr, lines...)
}

// uvicorn writes a line of the HTTP server's own logger.
func (l *logbook) uvicorn(body string) {
	prefix := ""
	if rawIsPrefixed.at(l.release) {
		prefix = l.prefix(api)
	}
	l.write(l.stdout, prefix+"INFO:     "+body)
}

// standin writes a line of the stand-in itself, which no vLLM prints.
func (l *logbook) standin(format string, values ...any) {
	l.write(l.stderr, "standin: "+fmt.Sprintf(format, values...))
}

// frame is one step of a traceback.
type frame struct{ file, function, code string }

const pythonPath = "/usr/local/lib/python3.12/dist-packages/"

func traceback(frames []frame, last string) string {
	var b strings.Builder
	b.WriteString("Traceback (most recent call last):\n")
	for i, f := range frames {
		path := f.file
		if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "<") {
			path = pythonPath + path
		}
		fmt.Fprintf(&b, "  File \"%s\", line %d, in %s\n    %s\n", path, 101+37*i, f.function, f.code)
	}
	return b.String() + last
}

// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// release is a vLLM version's numbers: 0.10.1.1 is [0 10 1 1], 0.8.5.post1 and 0.8.5 are [0 8 5 0].
type release [4]int

var releaseShape = regexp.MustCompile(`^v?(\d+(?:\.\d+){1,3})`)

func parseRelease(text string) (release, error) {
	var r release
	match := releaseShape.FindStringSubmatch(text)
	if match == nil {
		return r, fmt.Errorf("not a vLLM version: %q", text)
	}
	for i, part := range strings.Split(match[1], ".") {
		r[i], _ = strconv.Atoi(part)
	}
	return r, nil
}

func mustRelease(text string) release {
	r, err := parseRelease(text)
	if err != nil {
		panic(err)
	}
	return r
}

func (r release) before(other release) bool {
	for i := range r {
		if r[i] != other[i] {
			return r[i] < other[i]
		}
	}
	return false
}

// from is the value that holds from a release on.
type from[T any] struct {
	release string
	value   T
}

// ranges is a value by version range, oldest first: each entry ends where the next one begins.
type ranges[T any] []from[T]

// at returns the value for a release, and the zero value before the first entry.
func (r ranges[T]) at(v release) T {
	var found T
	for _, entry := range r {
		if v.before(mustRelease(entry.release)) {
			break
		}
		found = entry.value
	}
	return found
}

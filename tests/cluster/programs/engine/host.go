// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const mib = 1 << 20

// hold allocates anonymous memory and touches every page of it. Go's collector never sees it.
func hold(size int) ([]byte, error) {
	if size <= 0 {
		return nil, nil
	}
	memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	for page := 0; page < size; page += os.Getpagesize() {
		memory[page] = 1
	}
	return memory, nil
}

// eat allocates what is needed, or without a need until the kernel kills this process. The ceiling keeps a test
// without a limit from eating a machine.
func eat(needMiB, ceilingMiB int) ([][]byte, error) {
	const stepMiB = 4
	var held [][]byte
	for eaten := 0; needMiB == 0 || eaten < needMiB; eaten += stepMiB {
		if eaten >= ceilingMiB {
			return nil, fmt.Errorf("no memory limit stopped the allocation at %d MiB (STANDIN_CEILING_MIB)", ceilingMiB)
		}
		memory, err := hold(stepMiB * mib)
		if err != nil {
			return nil, fmt.Errorf("allocation refused after %d MiB: %w", eaten, err)
		}
		held = append(held, memory)
	}
	return held, nil
}

// work keeps one thread busy for that much CPU time, however long a quota makes it take.
func work(cpu time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	for n := uint64(1); threadTime()-began < cpu; {
		for range 100000 {
			n = n*6364136223846793005 + 1442695040888963407
		}
	}
}

// threadTime is the CPU time of this thread.
func threadTime() time.Duration {
	const rusageThread = 1
	var usage syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// burn keeps n threads busy, whatever CPU quota the runtime has seen.
func burn(n int) {
	if n <= 0 {
		return
	}
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), n+2))
	for range n {
		go func() {
			runtime.LockOSThread()
			for n := uint64(1); n != 0; n = n*6364136223846793005 + 1442695040888963407 {
			}
		}()
	}
}

// attempt counts the container's starts in a folder that outlives them. Without one each start is the first.
func attempt(folder string) (int, error) {
	if folder == "" {
		return 1, nil
	}
	name := filepath.Join(folder, "attempts")
	n := 0
	if data, err := os.ReadFile(name); err == nil {
		if n, err = strconv.Atoi(strings.TrimSpace(string(data))); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
	} else if !os.IsNotExist(err) {
		return 0, err
	}
	n++
	return n, os.WriteFile(name, fmt.Appendf(nil, "%d\n", n), 0o644)
}

// residentBytes is this process' resident memory, as /proc tells it.
func residentBytes() int {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.Atoi(fields[1])
	return pages * os.Getpagesize()
}

// freeMiB is the room in a file system.
func freeMiB(folder string) (int, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil {
		return 0, err
	}
	return int(stat.Bavail * uint64(stat.Bsize) / mib), nil
}

// sleepForever ignores everything but SIGKILL. A bare select{} would end as a deadlock.
func sleepForever() {
	for {
		time.Sleep(time.Hour)
	}
}

// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// A death of one of vLLM's processes needs a real process: the engine starts itself again under that process' title.
// STANDIN_CHILD tells the child what to do.

func init() {
	// The kernel names a process after its main thread, and the Go runtime runs init on it.
	if os.Getenv("STANDIN_CHILD") != "" {
		runtime.LockOSThread()
		setProcessName(os.Args[0])
	}
}

// setProcessName is what the kernel's OOM report shows; it keeps 15 bytes.
func setProcessName(name string) {
	bytes, err := syscall.BytePtrFromString(filepath.Base(name))
	if err == nil {
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(bytes)), 0)
	}
}

// runChild is main for a child process. It returns nil when it got what it needs, an error when its death did not come.
func runChild(task string) error {
	signal.Ignore(syscall.SIGTERM)
	s := readSettings()
	switch task {
	case "eat":
		_, err := eat(need(), s.ceilingMiB)
		return err
	case "shm":
		return fillUntilBusError(s, need())
	case "segv":
		dieBySignal(syscall.SIGSEGV)
	}
	return fmt.Errorf("unknown task %q", task)
}

// need is what a child needs, in MiB; 0: all that there is.
func need() int { return number("STANDIN_CHILD_MIB", 0) }

// fillUntilBusError writes to a file in /dev/shm through a mapping until there is no page left for it, or no need.
func fillUntilBusError(s settings, needMiB int) error {
	file, err := os.CreateTemp(s.shmFolder, "psm_")
	if err != nil {
		return err
	}
	// An unlinked file's pages go when the process dies; vLLM's segments stay, but a test wants its limit back.
	_ = os.Remove(file.Name())
	size := s.ceilingMiB * mib
	if needMiB > 0 {
		size = needMiB * mib
	}
	if err := file.Truncate(int64(size)); err != nil {
		return err
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	debug.SetPanicOnFault(true)
	defer func() {
		if recover() == nil {
			return
		}
		if os.Getenv("PYTHONFAULTHANDLER") != "" {
			fmt.Fprintln(os.Stderr, "Fatal Python error: Bus error")
		}
		dieBySignal(syscall.SIGBUS)
	}()
	for page := 0; page < size; page += os.Getpagesize() {
		memory[page] = 1
	}
	if needMiB > 0 {
		return nil
	}
	return fmt.Errorf("%s took %d MiB without a bus error (STANDIN_CEILING_MIB)", s.shmFolder, s.ceilingMiB)
}

// dieBySignal ends this process by a signal whose handler the Go runtime holds: it puts the default action back first.
func dieBySignal(sig syscall.Signal) {
	runtime.LockOSThread()
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	var defaultAction [4]uint64 // handler 0 is SIG_DFL
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&defaultAction)), 0, 8, 0, 0)
	_, _, _ = syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(syscall.Gettid()), uintptr(sig))
	time.Sleep(time.Second) // PID 1 of a namespace is spared by signals from inside
	os.Exit(128 + int(sig))
}

// children are those that this program waits for itself; the reaper leaves them alone.
var children = struct {
	sync.Mutex
	pids map[int]bool
}{pids: map[int]bool{}}

// spawn starts a child with a need under a process title and returns its process id and a function that waits for its death.
func spawn(task, title string, needMiB int) (pid int, wait func() death, err error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{title}
	cmd.Env = append(os.Environ(), "STANDIN_CHILD="+task, "STANDIN_CHILD_MIB="+strconv.Itoa(needMiB))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	children.Lock()
	err = cmd.Start()
	if err == nil {
		children.pids[cmd.Process.Pid] = true
	}
	children.Unlock()
	if err != nil {
		return 0, nil, err
	}
	return cmd.Process.Pid, func() death {
		_ = cmd.Wait()
		children.Lock()
		delete(children.pids, cmd.Process.Pid)
		children.Unlock()
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			return death(-int(status.Signal()))
		}
		return death(status.ExitStatus())
	}, nil
}

// death is an exit code as Python's multiprocessing counts it: negative for a signal.
type death int

func (d death) String() string { return strconv.Itoa(int(d)) }

// reap takes away orphans when this program is PID 1 of a container. It looks first and waits only for a child that
// nobody else waits for.
func reap() {
	if os.Getpid() != 1 {
		return
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD)
	const anyChild, exited, noHang, lookOnly = 0, 4, 1, 0x01000000
	go func() {
		for range signals {
			for {
				var info [128]byte
				_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, anyChild, 0, uintptr(unsafe.Pointer(&info)), exited|noHang|lookOnly, 0, 0)
				pid := int(*(*int32)(unsafe.Pointer(&info[16])))
				if errno != 0 || pid == 0 {
					break
				}
				children.Lock()
				ours := children.pids[pid]
				children.Unlock()
				if ours {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
		}
	}()
}

func titleOf(r release, single bool, rank int) string {
	if single {
		return titles.engine.at(r)
	}
	return strings.ReplaceAll(titles.worker.at(r), "{rank}", strconv.Itoa(rank))
}

// Package procfs finds and ends processes through /proc. It names a process by its id and its start time, so that a
// signal never reaches a stranger that was given the id later. Linux only.
package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is one process at one moment.
type Process struct {
	PID     int
	PPID    int
	Group   int
	Session int
	State   byte   // as in proc(5): R, S, D, T, Z, X, ...
	Start   uint64 // clock ticks after boot; with PID it is unique for the life of the machine
}

// Zombie reports whether the process has ended and only waits to be reaped.
func (p Process) Zombie() bool { return p.State == 'Z' || p.State == 'X' || p.State == 'x' }

// ErrGone: no such process, or the id belongs to another one by now.
var ErrGone = errors.New("process is gone")

// Read returns the process with the id, or ErrGone.
func Read(pid int) (Process, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return Process{}, ErrGone
	}
	if err != nil {
		return Process{}, fmt.Errorf("failed to read process %d: %w", pid, err)
	}
	return parseStat(raw)
}

// parseStat reads proc(5) stat. The second field, the program's name, may hold spaces and parentheses, so fields are
// counted from the last closing one.
func parseStat(raw []byte) (Process, error) {
	end := bytes.LastIndexByte(raw, ')')
	open := bytes.IndexByte(raw, '(')
	if open < 1 || end < open {
		return Process{}, errors.New("failed to parse process stat: no name")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw[:open])))
	if err != nil {
		return Process{}, errors.New("failed to parse process stat: bad id")
	}
	// After the name: state ppid pgrp session ... ; the start time is field 22 of the line, index 19 here.
	f := strings.Fields(string(raw[end+1:]))
	if len(f) < 20 || len(f[0]) != 1 {
		return Process{}, errors.New("failed to parse process stat: too few fields")
	}
	p := Process{PID: pid, State: f[0][0]}
	for i, dst := range []*int{&p.PPID, &p.Group, &p.Session} {
		if *dst, err = strconv.Atoi(f[1+i]); err != nil {
			return Process{}, errors.New("failed to parse process stat: bad number")
		}
	}
	if p.Start, err = strconv.ParseUint(f[19], 10, 64); err != nil {
		return Process{}, errors.New("failed to parse process stat: bad start time")
	}
	return p, nil
}

// All lists every process that can be seen. Processes that end while it reads are left out.
func All() ([]Process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("failed to list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("failed to list processes: %w", err)
	}
	var all []Process
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if p, err := Read(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// Descendants picks from all what descends from root, without root itself. Zombies are included: they may still have
// a place in the tree.
func Descendants(all []Process, root int) []Process {
	children := make(map[int][]Process, len(all))
	for _, p := range all {
		if p.PID != p.PPID {
			children[p.PPID] = append(children[p.PPID], p)
		}
	}
	var out []Process
	seen := map[int]bool{root: true}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, c := range children[queue[0]] {
			if !seen[c.PID] {
				seen[c.PID] = true
				out = append(out, c)
				queue = append(queue, c.PID)
			}
		}
	}
	return out
}

// Environ returns a variable of the process's environment as it was when its program started, and whether it is
// there. A process that may not be read counts as one without it.
func Environ(pid int, name string) (string, bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", false
	}
	for _, kv := range bytes.Split(raw, []byte{0}) {
		if v, ok := bytes.CutPrefix(kv, []byte(name+"=")); ok {
			return string(v), true
		}
	}
	return "", false
}

// Signal sends sig to exactly this process, or returns ErrGone.
func Signal(p Process, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	if err != nil {
		return fmt.Errorf("failed to open process %d: %w", p.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// The handle pins whoever has the id now: if that is still our process, the signal cannot go astray.
	now, err := Read(p.PID)
	if err != nil {
		return err
	}
	if now.Start != p.Start {
		return ErrGone
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); errors.Is(err, unix.ESRCH) {
		return ErrGone
	} else if err != nil {
		return fmt.Errorf("failed to signal process %d: %w", p.PID, err)
	}
	return nil
}

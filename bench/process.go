package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of the times in /proc/PID/stat: the kernel shows 100 a second on every machine (USER_HZ).
const clockTick = 10 * time.Millisecond

// cpuTime is what a process has used of the processors so far, all its threads, in its own code and in the kernel.
func cpuTime(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("failed to read the times of process %d: %w", pid, err)
	}
	// The name in brackets may hold anything; utime and stime are the 12th and 13th field behind it (proc(5)).
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("failed to read the times of process %d: %q", pid, raw)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("failed to read the times of process %d: %w", pid, err)
	}
	return time.Duration(user+system) * clockTick, nil
}

// resident is the memory of a process that is in RAM and its own, in bytes: what would be free without it.
func resident(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, fmt.Errorf("failed to read the memory of process %d: %w", pid, err)
	}
	defer f.Close()
	sum := int64(0)
	for s := bufio.NewScanner(f); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), ":")
		if name != "Private_Dirty" && name != "Private_Clean" {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("failed to read the memory of process %d: %w", pid, err)
		}
		sum += kb << 10
	}
	return sum, nil
}

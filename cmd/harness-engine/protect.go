package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// protectMemory keeps other processes of the same user from reading this one's memory and environment in /proc, and the
// kernel from writing it to a core file: the provider keys are there, and a worker without isolation is such a process
// (proc(5), prctl(2) on PR_SET_DUMPABLE).
func protectMemory() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("failed to protect memory: %w", err)
	}
	return nil
}

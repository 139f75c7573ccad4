//go:build !linux || (!amd64 && !arm64)

package ws

import "syscall"

// attempt writes what a socket takes at once; it does not block.
func attempt(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }

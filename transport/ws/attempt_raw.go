//go:build linux && (amd64 || arm64)

package ws

import (
	"syscall"
	"unsafe"
)

// briefly is the most bytes of a write that is over before the scheduler would have done anything about it.
const briefly = 8 << 10

// attempt writes what a socket takes at once. The scheduler is not told of a short write: it would take the processor away
// from a call that waits for nothing, and wake another thread for it.
func attempt(fd uintptr, p []byte) (int, error) {
	if len(p) > briefly || len(p) == 0 {
		return syscall.Write(int(fd), p)
	}
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
		syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

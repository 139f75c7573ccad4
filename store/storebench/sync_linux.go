package storebench

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData makes the file's data durable, without its time stamps.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

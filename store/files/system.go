package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/harness-engine/harness-engine/store/internal/folder"
)

// system is what Put does to the disk, each step of which can fail.
type system struct {
	create func(path string) (file, error)
	mkdir  func(path string) error
	rename func(from, to string) error
	sync   func(folder string) error
	free   func(path string) (int64, error)
}

// file is a file that is being written.
type file interface {
	io.Writer
	Sync() error
	Close() error
}

var realSystem = system{
	create: func(path string) (file, error) {
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, folder.FileMode)
	},
	mkdir:  func(path string) error { return os.Mkdir(path, folder.Mode) },
	rename: os.Rename,
	sync:   folder.Sync,
	free:   folder.Free,
}

// noRoom reports that the disk, or the user's share of it, is full.
func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

package worker

import (
	"context"
	"io"
)

// Command is one program to start. Nothing is inherited from the worker: not its environment, not its descriptors.
type Command struct {
	Path string   // absolute path, or a name that is looked up in the PATH of Env
	Args []string // without the program's own name
	Dir  string   // working folder; must exist
	Env  []string // the whole environment, KEY=value
}

// Process is one started program. All methods may be called from several goroutines.
type Process interface {
	Pid() int
	// Stdin is the write end of the program's standard input; closing it is how most harnesses are asked to end.
	Stdin() io.WriteCloser
	// Stdout is the read end of its standard output. It stays readable after the program has ended, up to the end of
	// what was written; a descendant that holds the other end open is cut off by Kill or KillAll.
	Stdout() io.ReadCloser
	// StderrTail is the last part of what it wrote to standard error, at most MaxStderrTail bytes, as valid UTF-8.
	StderrTail() string
	// Wait blocks until the program has ended and returns how: nil for exit code 0, else an *ExitError.
	Wait() error
	// Done is closed when the program has ended.
	Done() <-chan struct{}
	// Kill ends the program, its process group and everything that descends from it. It may be called at any time.
	Kill()
}

// Tree starts processes that the host owns: each in a session and process group of its own. The host is the subreaper
// of all of them, so that a descendant that detaches itself (setsid, double fork) is still found and ended.
type Tree interface {
	// Start starts the program. The process is not bound to ctx: ctx bounds only the start itself.
	Start(ctx context.Context, c Command) (Process, error)
}

// MaxStderrTail bounds what Process.StderrTail keeps, in bytes.
const MaxStderrTail = 8 << 10

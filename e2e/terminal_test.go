package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// Keys.
const (
	enter = "\r"
	ctrlC = "\x03"
	ctrlD = "\x04"
)

// terminal is a person at a terminal: it types, and reads what is on the screen.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	pty    *os.File
	before unix.Termios  // the settings of the terminal in which the program was started
	exited chan struct{} // closed when the program has ended
	read   chan struct{} // closed when everything has been read

	mu    sync.Mutex
	raw   []byte // everything that was written
	moved chan struct{}
	seen  int // how much of the text expect has passed
}

// openTerminal runs a command of the engine's program in a terminal of its own.
func openTerminal(t *testing.T, e *enginetest.Engine, args []string, env ...string) *terminal {
	t.Helper()
	cmd := e.Command(t.Context(), args, append([]string{"TERM=xterm-256color"}, env...)...)
	f, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close() // the program has its own
	before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err = errors.Join(err, pty.Setsize(f, &pty.Winsize{Rows: 50, Cols: 3000})); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &terminal{t: t, cmd: cmd, pty: f, before: *before, exited: make(chan struct{}), read: make(chan struct{}), moved: make(chan struct{})}
	go func() { defer close(s.read); s.listen() }()
	go func() { _ = cmd.Wait(); close(s.exited) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-s.exited
		_ = f.Close()
		<-s.read
		if t.Failed() {
			t.Logf("screen:\n%s", s.text())
		}
	})
	return s
}

// listen reads until nobody has the terminal open any more, which is when the program has ended and all of its words were read.
func (s *terminal) listen() {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.pty.Read(buf)
		s.mu.Lock()
		s.raw = append(s.raw, buf[:n]...)
		close(s.moved)
		s.moved = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// sequences are what this program and its line editor tell the terminal; text from elsewhere never has any.
var sequences = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// text is what is on the screen, and above it.
func (s *terminal) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plain()
}

func (s *terminal) plain() string {
	return strings.ReplaceAll(sequences.ReplaceAllString(string(s.raw), ""), "\r", "")
}

// expect waits until the text appears behind what was expected before, and returns what stands between.
func (s *terminal) expect(want string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), caseTimeout)
	defer cancel()
	for {
		s.mu.Lock()
		text, moved := s.plain(), s.moved
		s.mu.Unlock()
		if at := strings.Index(text[min(s.seen, len(text)):], want); at >= 0 {
			between := text[s.seen : s.seen+at]
			s.seen += at + len(want)
			return between
		}
		select {
		case <-moved:
		case <-s.read:
			if s.text() == text {
				s.t.Fatalf("the program ended before %q", want)
			}
		case <-ctx.Done():
			s.t.Fatalf("%q did not come", want)
		}
	}
}

// modes are the terminal's settings.
func (s *terminal) modes() unix.Termios {
	s.t.Helper()
	m, err := unix.IoctlGetTermios(int(s.pty.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *m
}

// typed types.
func (s *terminal) typed(keys string) {
	s.t.Helper()
	if _, err := s.pty.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// say types a line at the prompt of a message, and passes its echo.
func (s *terminal) say(text string) {
	s.t.Helper()
	s.answer("> ", text)
}

// reply types a line at the prompt of a question, and passes its echo.
func (s *terminal) reply(text string) {
	s.t.Helper()
	s.answer("? ", text)
}

func (s *terminal) answer(prompt, text string) {
	s.t.Helper()
	s.expect(prompt)
	s.typed(text + enter)
	s.expect(text + "\n")
}

// code waits for the program's end and returns its exit code.
func (s *terminal) code() int {
	s.t.Helper()
	select {
	case <-s.exited:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(caseTimeout):
		s.t.Fatal("the program did not end")
		return -1
	}
}

// leave quits and checks that the program says how to come back.
func (s *terminal) leave() (session string) {
	s.t.Helper()
	s.say("/quit")
	session = s.comeBack()
	if code := s.code(); code != 0 {
		s.t.Errorf("exit code %d", code)
	}
	return session
}

// comeBack is the session in the line that says how to come back.
func (s *terminal) comeBack() string {
	s.t.Helper()
	s.expect("come back with: harness-engine chat ")
	s.expect(" --resume ")
	return s.expect(" ")
}

// piped runs a command of the engine's program without a terminal and returns what it wrote and its exit code.
func piped(t *testing.T, e *enginetest.Engine, input string, args ...string) (out, errs string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
	defer cancel()
	cmd := e.Command(ctx, args)
	var o, x strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &o, &x
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(fmt.Errorf("failed to run %v: %w", args, err))
	}
	return o.String(), x.String(), cmd.ProcessState.ExitCode()
}

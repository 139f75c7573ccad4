package chat

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/term"
)

var (
	// errInterrupted: Ctrl-C at a prompt.
	errInterrupted = errors.New("interrupted")
	// errLeave: the person or the system wants the program to end.
	errLeave = errors.New("leave")
)

// maxLine bounds one line of input, in bytes: a message's bound of the API and some.
const maxLine = 512 << 10

// Columns of an output that is no terminal, and of a terminal that does not tell.
const (
	plainColumns    = 120
	terminalColumns = 80
)

// console is the person's end: lines in, and what interrupts.
type console interface {
	// read asks for one line. errInterrupted for Ctrl-C, io.EOF at the end of the input, errLeave when the program shall
	// end.
	read(ctx context.Context, prompt string) (string, error)
	// interactive reports whether a person sits there, rather than a script.
	interactive() bool
	// signals gives Ctrl-C as os.Interrupt, and everything that ends a program as itself.
	signals() <-chan os.Signal
	// lend gives the terminal to another program while f runs.
	lend(f func() error) error
	close()
}

// got is one line that was read.
type got struct {
	text string
	err  error
}

// leaving are the signals that end the program; the run goes on.
var leaving = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

func notify() chan os.Signal {
	c := make(chan os.Signal, 8)
	signal.Notify(c, append([]os.Signal{os.Interrupt}, leaving...)...)
	return c
}

// lines is the console of a script: plain lines, and no prompts.
type lines struct {
	in      io.Reader
	signal  chan os.Signal
	started bool
	asked   bool // a line was asked for and has not come yet
	asks    chan struct{}
	lines   chan got
}

// newLines makes a console of any input. The signals come from the system unless they are given.
func newLines(in io.Reader, signals chan os.Signal) *lines {
	if signals == nil {
		signals = notify()
	}
	return &lines{in: in, signal: signals, asks: make(chan struct{}), lines: make(chan got, 1)}
}

// pump reads a line each time that one is asked for: what nobody asked for stays in the input.
func (l *lines) pump() {
	s := bufio.NewScanner(l.in)
	s.Buffer(nil, maxLine)
	for range l.asks {
		switch {
		case s.Scan():
			l.lines <- got{text: s.Text()}
		case s.Err() != nil:
			l.lines <- got{err: fmt.Errorf("failed to read the input: %w", s.Err())}
		default:
			l.lines <- got{err: io.EOF}
		}
	}
}

func (l *lines) read(ctx context.Context, _ string) (string, error) {
	if !l.started {
		l.started = true
		go l.pump()
	}
	if !l.asked {
		l.asks <- struct{}{} // the pump waits for it
		l.asked = true
	}
	select {
	case g := <-l.lines:
		l.asked = false
		return g.text, g.err
	case <-l.signal:
		return "", errLeave
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (l *lines) interactive() bool         { return false }
func (l *lines) signals() <-chan os.Signal { return l.signal }
func (l *lines) lend(f func() error) error { return f() }

func (l *lines) close() {
	signal.Stop(l.signal)
	close(l.asks)
}

// editor is the console of a person at a terminal: a line editor with a history. The terminal is raw only while a line
// is read; otherwise Ctrl-C is the signal that it always is.
type editor struct {
	in, out *os.File
	signal  chan os.Signal
	resized chan os.Signal
	keys    *keys
	history *history
	term    *term.Terminal
}

// maxHistory is how many messages the arrow keys find again.
const maxHistory = 200

// history holds the messages of this chat, newest first. It implements term.History.
type history struct {
	on      bool // what is read is a message, not an answer
	entries []string
}

func (h *history) Add(entry string) {
	if h.on && strings.TrimSpace(entry) != "" && (len(h.entries) == 0 || h.entries[0] != entry) {
		h.entries = slices.Insert(h.entries, 0, entry)
		h.entries = h.entries[:min(len(h.entries), maxHistory)]
	}
}

func (h *history) Len() int        { return len(h.entries) }
func (h *history) At(i int) string { return h.entries[i] }

// newEditor makes the console of the terminal that in and out are.
func newEditor(in, out *os.File) *editor {
	e := &editor{in: in, out: out, signal: notify(), resized: make(chan os.Signal, 1), keys: &keys{from: in}, history: &history{}}
	signal.Notify(e.resized, syscall.SIGWINCH)
	e.term = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{e.keys, out}, "")
	e.term.History = e.history
	return e
}

// keys is what is typed, with Ctrl-C made into keys that give up the line: the line editor takes Ctrl-C for the end of
// the input, and keeps what was typed before.
type keys struct {
	from        io.Reader
	interrupted bool
}

const (
	ctrlC  = 0x03
	giveUp = "\x05\x15\r" // to the end of the line, delete it, enter
)

func (k *keys) Read(p []byte) (int, error) {
	if len(p) < len(giveUp) {
		return 0, io.ErrShortBuffer
	}
	n, err := k.from.Read(p[:len(p)-len(giveUp)+1])
	if at := strings.IndexByte(string(p[:n]), ctrlC); at >= 0 {
		k.interrupted = true // what was typed behind it is given up, too
		return at + copy(p[at:], giveUp), err
	}
	return n, err
}

func (e *editor) read(ctx context.Context, prompt string) (string, error) {
	state, err := term.MakeRaw(int(e.in.Fd()))
	if err != nil {
		return "", fmt.Errorf("failed to read from the terminal: %w", err)
	}
	defer func() { _ = term.Restore(int(e.in.Fd()), state) }()
	e.term.SetBracketedPasteMode(true)
	defer e.term.SetBracketedPasteMode(false)
	e.resize()
	e.term.SetPrompt(prompt)
	e.keys.interrupted, e.history.on = false, prompt == messagePrompt
	done := make(chan got, 1)
	go func() { done <- e.lines() }()
	for {
		select {
		case g := <-done:
			if g.err == nil && e.keys.interrupted {
				return "", errInterrupted
			}
			return g.text, g.err
		case <-e.resized:
			e.resize()
		case <-e.signal:
			return "", errLeave
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// lines reads one line; what is pasted, or continued by a backslash at its end, is one line however many it has.
func (e *editor) lines() got {
	var parts []string
	for size := 0; ; {
		text, err := e.term.ReadLine()
		pasted := errors.Is(err, term.ErrPasteIndicator)
		if err != nil && !pasted {
			return got{err: err}
		}
		if e.keys.interrupted {
			return got{}
		}
		if size += len(text); size > maxLine {
			return got{err: fmt.Errorf("the input is longer than %d bytes", maxLine)}
		}
		head, continued := strings.CutSuffix(text, `\`)
		if !pasted && continued {
			text = head
		}
		parts = append(parts, text)
		if !pasted && !continued {
			return got{text: strings.Join(parts, "\n")}
		}
	}
}

func (e *editor) resize() {
	if w, h, err := term.GetSize(int(e.out.Fd())); err == nil && w > 0 {
		_ = e.term.SetSize(w, h) // a drawing that is off for one line
	}
}

func (e *editor) interactive() bool         { return true }
func (e *editor) signals() <-chan os.Signal { return e.signal }

// lend lets another program have the terminal. Ctrl-C is that program's then.
func (e *editor) lend(f func() error) error {
	err := f()
	for {
		select {
		case s := <-e.signal:
			if s != os.Interrupt {
				e.signal <- s // there is room: it was just taken out
				return errors.Join(err, errLeave)
			}
		default:
			return err
		}
	}
}

func (e *editor) close() {
	signal.Stop(e.signal)
	signal.Stop(e.resized)
}

// columnsOfFile tells how wide an output is.
func columnsOfFile(out io.Writer) func() int {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() int { return plainColumns }
	}
	return func() int {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
		return terminalColumns
	}
}

package chat

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// style is a way to draw text: a parameter of the terminal's SGR sequence (ECMA-48).
type style string

// Styles.
const (
	plain  style = ""
	bold   style = "1"
	faint  style = "2"
	red    style = "31"
	yellow style = "33"
	cyan   style = "36"
)

// sheet is what is written to, from the top down. It knows whether a line is begun.
type sheet struct {
	w      *bufio.Writer
	colour bool
	begun  bool // something is on the last line
}

func newSheet(w io.Writer, colour bool) *sheet {
	return &sheet{w: bufio.NewWriter(w), colour: colour}
}

// write adds text that is harmless already.
func (s *sheet) write(st style, text string) {
	if text == "" {
		return
	}
	s.begun = !strings.HasSuffix(text, "\n")
	if !s.colour || st == plain {
		_, _ = s.w.WriteString(text) // an output that is gone shows at flush
		return
	}
	// The style ends before each line feed: a line that is cut off leaves the terminal as it was.
	for i, part := range strings.Split(text, "\n") {
		if i > 0 {
			_ = s.w.WriteByte('\n')
		}
		if part != "" {
			_, _ = fmt.Fprintf(s.w, "\x1b[%sm%s\x1b[0m", st, part)
		}
	}
}

// fresh begins a new line, unless the last one is empty.
func (s *sheet) fresh() {
	if s.begun {
		s.write(plain, "\n")
	}
}

// line writes one whole line of its own.
func (s *sheet) line(st style, text string) {
	s.fresh()
	s.write(st, text+"\n")
}

func (s *sheet) flush() error { return s.w.Flush() }

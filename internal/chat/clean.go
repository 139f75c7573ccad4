package chat

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A terminal obeys what is written to it: colours that hide text, titles, clipboard writes, moves of the cursor over
// what was said before. Nothing that a model, a tool or an engine says reaches the terminal except through this file.

// cleaner makes text from outside harmless, piece by piece: the pieces of a stream give what the whole would.
type cleaner struct {
	carriage bool // the last piece ended with a carriage return, whose meaning the next rune tells
}

// text keeps line feeds and tabs, takes CR LF for a line feed, and writes out every other rune that a terminal would
// obey or that would reorder or hide what stands beside it.
func (c *cleaner) text(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		if c.carriage {
			c.carriage = false
			if r != '\n' {
				b.WriteString(show('\r'))
			}
		}
		switch {
		case r == '\r':
			c.carriage = true
		case r == '\n' || r == '\t' || harmless(r):
			b.WriteRune(r)
		default:
			b.WriteString(show(r))
		}
	}
	return b.String()
}

// end gives what is left when no further piece follows.
func (c *cleaner) end() string {
	if !c.carriage {
		return ""
	}
	c.carriage = false
	return show('\r')
}

// clean makes a whole text harmless.
func clean(s string) string {
	var c cleaner
	return c.text(s) + c.end()
}

// line makes a text harmless and puts it on one line.
func line(s string) string {
	return strings.Join(strings.Fields(clean(s)), " ")
}

// Zero-width joiners hold emoji and scripts together; they hide nothing.
const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
)

// harmless reports whether a terminal only draws the rune. Control characters (Cc: C0, DEL, C1), format characters (Cf:
// bidirectional overrides, invisible tags) and the separators of lines and paragraphs (Zl, Zp) are not drawn.
func harmless(r rune) bool {
	switch r {
	case zeroWidthJoiner, zeroWidthNonJoiner, utf8.RuneError:
		return true
	}
	return !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// controlPictures is the start of the block that has a picture for each C0 control.
const controlPictures = 0x2400

// show writes a rune that is not drawn as something that is.
func show(r rune) string {
	switch {
	case r < 0x20:
		return string(controlPictures + r)
	case r == 0x7f:
		return "␡"
	}
	return fmt.Sprintf("\\u{%x}", r)
}

package chat

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// columns is how many columns of a terminal the rune takes.
func columns(r rune) int {
	if r < 0x7f {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// columnsOf is how many columns a line takes.
func columnsOf(s string) int {
	n := 0
	for _, r := range s {
		n += columns(r)
	}
	return n
}

// ellipsis says that something was left out.
const ellipsis = "…"

// fit cuts a line to at most n columns.
func fit(s string, n int) string {
	if columnsOf(s) <= n {
		return s
	}
	var b strings.Builder
	room := n - 1 // for the ellipsis
	for _, r := range s {
		if room -= columns(r); room < 0 {
			break
		}
		b.WriteRune(r)
	}
	if n > 0 {
		b.WriteString(ellipsis)
	}
	return b.String()
}

package event

import (
	"strings"
	"unicode/utf8"
)

// cleanText makes s safe to show and to encode. The table, which docs/events.md repeats:
//
//	CR LF, and CR alone            LF
//	U+0000 to U+001F, but TAB, LF  the visible picture of the control, U+2400 to U+241F
//	U+007F (DEL)                   U+2421
//	U+0080 to U+009F (C1)          U+FFFD
//	each byte of invalid UTF-8     U+FFFD
//
// It is stateless: a CR at the end of one delta becomes an LF whatever the next delta begins with.
func cleanText(s string) string {
	i := firstUnclean(s)
	if i < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	b.WriteString(s[:i])
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\r':
			if i+1 < len(s) && s[i+1] == '\n' {
				n = 2
			}
			b.WriteByte('\n')
		case r == '\t' || r == '\n':
			b.WriteByte(byte(r))
		case r < 0x20:
			b.WriteRune(0x2400 + r)
		case r == 0x7f:
			b.WriteRune(0x2421)
		case r >= 0x80 && r < 0xa0:
			b.WriteRune(utf8.RuneError)
		default:
			b.WriteRune(r) // an invalid byte decodes to U+FFFD
		}
		i += n
	}
	return b.String()
}

// firstUnclean returns the place of the first byte that cleanText changes, or -1.
func firstUnclean(s string) int {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if (c < 0x20 && c != '\t' && c != '\n') || c == 0x7f {
				return i
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if (r == utf8.RuneError && n == 1) || r < 0xa0 {
			return i
		}
		i += n
	}
	return -1
}

// isPlain reports whether s is valid UTF-8 without control characters; extra names control characters that pass.
func isPlain(s, extra string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if (r < 0x20 || (r >= 0x7f && r < 0xa0)) && !strings.ContainsRune(extra, r) {
			return false
		}
	}
	return true
}

// ellipsis marks display text that was cut.
const ellipsis = "…"

// cutText shortens clean display text to at most limit bytes, on a rune, with an ellipsis where it was cut.
func cutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return s[:runeBoundary(s, max(0, limit-len(ellipsis)))] + ellipsis
}

// runeBoundary is the largest i <= n at which a rune of s begins or s ends.
func runeBoundary(s string, n int) int {
	if n >= len(s) {
		return len(s)
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}

// splitText splits s into pieces of at most limit bytes, never inside a rune.
func splitText(s string, limit int) []string {
	pieces := make([]string, 0, len(s)/limit+1)
	for len(s) > limit {
		n := runeBoundary(s, limit)
		if n == 0 {
			n = limit
		}
		pieces = append(pieces, s[:n])
		s = s[n:]
	}
	return append(pieces, s)
}

// cutEncoded shortens clean text so that its JSON string takes at most limit bytes between the quotes.
func cutEncoded(s string, limit int) string {
	used := 0
	for i, r := range s {
		used += encodedLen(r)
		if used > limit {
			return s[:i]
		}
	}
	return s
}

// encodedLen is how many bytes encoding/json takes for r in a string, without HTML escaping.
func encodedLen(r rune) int {
	switch r {
	case '"', '\\', '\t', '\n':
		return 2
	case 0x2028, 0x2029:
		return 6
	}
	return utf8.RuneLen(r)
}

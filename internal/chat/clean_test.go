package chat

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestClean(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"plain", "Hello, wörld: 日本 👩‍👩‍👧", "Hello, wörld: 日本 👩‍👩‍👧"},
		{"lines and tabs", "a\tb\nc\r\nd", "a\tb\nc\nd"},
		{"colour", "\x1b[31mred", "␛[31mred"},
		{"clipboard", "\x1b]52;c;cm0gLXJm\x07", "␛]52;c;cm0gLXJm␇"},
		{"one-byte introducer", "\u009b31mred", "\\u{9b}31mred"},
		{"overwriting", "rm -rf /\rls", "rm -rf /␍ls"},
		{"backspaces", "rm\b\bls", "rm␈␈ls"},
		{"trailing return", "a\r", "a␍"},
		{"delete", "a\x7f", "a␡"},
		{"bidirectional override", "abc\u202efdp.exe", "abc\\u{202e}fdp.exe"},
		{"isolate", "\u2066x\u2069", "\\u{2066}x\\u{2069}"},
		{"invisible tags", "a\U000e0041", "a\\u{e0041}"},
		{"line separator", "a\u2028b", "a\\u{2028}b"},
		{"null", "\x00", "␀"},
		{"invalid", "a\xffb", "a\ufffdb"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := clean(tc.in); got != tc.want {
				t.Errorf("clean(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
	if got, want := line("a\r\n  b\t\x1b[2Jc\n"), "a b ␛[2Jc"; got != want {
		t.Errorf("line: got %q, want %q", got, want)
	}
}

// hostile draws text that is rich in what terminals obey.
func hostile() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		runes := rapid.SliceOf(rapid.OneOf(
			rapid.RuneFrom([]rune{0x1b, '\r', '\n', '\t', '\b', 7, 0x7f, 0x9b, 0x9d, 0x202e, 0x2066, 0xfeff, '[', ']', 'm', ';'}),
			rapid.Rune())).Draw(t, "runes")
		return string(runes)
	})
}

func TestCleanIsHarmlessHoweverItComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := hostile().Draw(t, "text")
		whole := clean(s)
		if !utf8.ValidString(whole) {
			t.Fatalf("%q is not UTF-8", whole)
		}
		for _, r := range whole {
			if r != '\n' && r != '\t' && r != zeroWidthJoiner && r != zeroWidthNonJoiner && unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) && !unicode.In(r, unicode.Co, unicode.Cs) {
				t.Fatalf("%q has %U", whole, r)
			}
		}
		var c cleaner
		var b strings.Builder
		for rest := []rune(s); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			b.WriteString(c.text(string(rest[:n])))
			rest = rest[n:]
		}
		b.WriteString(c.end())
		if got := b.String(); got != whole {
			t.Fatalf("in pieces %q, whole %q", got, whole)
		}
	})
}

func FuzzClean(f *testing.F) {
	f.Add("\x1b[31m\r\n\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range clean(s) {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Fatalf("clean(%q) has %U", s, r)
			}
		}
	})
}
